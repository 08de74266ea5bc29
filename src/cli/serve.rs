//! `nouns serve`: from flags to a running server, or to one message that says why not.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::accounts;
use super::allocator;
use super::cert::shell_quoted;
use super::command_hint::CommandHint;
use super::demo::{self, DemoFolder};
use super::first_steps::{self, Login};
use super::first_user;
use super::model_source::{
    built_in_store, find_model, key_source, password_file, read_model, retain_stored,
};
use super::reload::{AcceptedModel, LoadedModel, ReloadContext};
use super::report::{CommandError, command_error, internal_error_message, print_line};
use super::roles::RoleReview;
use super::serve_args::ServeArgs;
use super::serve_settings::{ProcessSettings, trusted_proxies};
use super::stored_credentials;
use crate::admission::AdmissionControl;
use crate::auth::Authenticator;
use crate::auth::key::FINGERPRINT_NAME;
use crate::auth::key_source::{KeySource, Keyring};
use crate::events::webhook::{WebhookContext, WebhookEngine};
use crate::events::{Feed, FeedContext};
use crate::fault::OrBug as _;
use crate::log::{Level, Logger};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::pipeline::{App, SharedState};
use crate::reply::ReplyBuilder;
use crate::server::tls::TlsConfig;
use crate::server::{self, ExitOutcome, Host, Listener, ListenerKind, ReloadCheck, ServiceManager};
use crate::store::{self, AdminStore, Database, MIGRATION_STAMP, OpenError, Store};
use crate::wire;

/// The pause between two attempts to reach a database that was lost during the start.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// `unknown_variables` are those of the environment that look like ours.
pub fn run(flags: ServeArgs, unknown_variables: &[String]) -> Result<ExitCode, CommandError> {
    let ServeArgs { model, database, key_file, .. } = &flags;
    let hint = CommandHint::new(model.as_deref(), database.as_deref(), key_file.as_deref());
    let done = start(flags, unknown_variables);
    done.map_err(|CommandError(message)| CommandError(hint.complete(&message)))
}

fn start(flags: ServeArgs, unknown_variables: &[String]) -> Result<ExitCode, CommandError> {
    allocator::tune()?;
    #[cfg(debug_assertions)]
    flags.fault.as_deref().map_or(Ok(()), crate::fault::inject)?;
    let demo = flags.demo.then(DemoFolder::create).transpose()?;
    let source = match demo {
        Some(_) => built_in_store(),
        None => find_model(flags.model.as_deref())?,
    };
    let declared = Arc::new(read_model(&source)?);
    let settings = Arc::new(ProcessSettings::resolve(&flags, &declared));
    let demo_database = demo.as_ref().map(DemoFolder::database);
    let database = Arc::new(settings.database(demo_database.as_deref(), &declared)?);
    let proxies = trusted_proxies(&flags.behind_proxy, declared.server.behind_proxy.as_deref())?;
    let tls = settings.read_tls(&declared)?.map(Arc::new);
    let redirect = settings.redirect_addresses(&declared)?;
    // Bind the ports first: releasing them changes nothing.
    let kind = if tls.is_some() { ListenerKind::Tls } else { ListenerKind::Plain };
    let mut listeners = server::bind(&settings.listen, kind)?;
    settings.check_exposure(&declared, &bound_addresses(&listeners), &proxies)?;
    listeners.extend(server::bind(redirect, ListenerKind::Redirect)?);
    let key = key_source(flags.key_file.as_deref(), &declared.server.storage, &database);
    let log = Logger::start(settings.log_style())?;
    log_panics(&log);
    // A server that needs a key fails before it changes anything.
    let key = if settings.is_open { key.ok() } else { Some(key?) };
    let is_key_named = flags.key_file.is_some() || declared.server.storage.key_file.is_some();
    first_user::refuse_lost_database(&database, key.as_ref(), is_key_named)?;
    if let Some(key) = key.as_ref().filter(|_| !settings.is_open) {
        let file = password_file(&database, key);
        first_user::refuse_foreign_file(&database, &declared, &file)?;
    }
    if !unknown_variables.is_empty() {
        let message = "unknown NOUNS_ environment variables are ignored";
        log.event(Level::Warning, message, &[("variables", &unknown_variables.join(", "))]);
    }
    let loaded = LoadedModel { source: Arc::new(source), declared };
    let context = ReloadContext { flags: Arc::new(flags), settings, database, log: log.clone() };
    let process = Arc::new(ServerProcess { reload: context, key, tls });
    let opened = process.open_store(&loaded, process.reload.settings.is_patient)?;
    if demo.is_some() {
        demo::fill(&process.reload.database, &opened.model)?;
    }
    let outcome = process.serve_with_reloads(listeners, loaded, opened);
    log.flush();
    match outcome? {
        ExitOutcome::Failed(cause) => Err(command_error(cause)),
        ExitOutcome::Broken(cause) => {
            print_line(&mut std::io::stderr(), internal_error_message(cause));
            Ok(ExitOutcome::Broken(cause).code())
        }
        outcome => Ok(outcome.code()),
    }
}

/// An open store, and the model and the metrics that belong to its tables.
struct OpenedStore {
    model: Arc<Model>,
    metrics: Arc<Metrics>,
    store: Store,
}

/// What stays the same when a changed model is applied.
struct ServerProcess {
    reload: ReloadContext,
    key: Option<KeySource>,
    tls: Option<Arc<TlsConfig>>,
}

impl ServerProcess {
    /// Opens the store; with the retained parts of the stored model where the model lacks them.
    fn open_store(
        &self,
        loaded: &LoadedModel,
        is_patient: bool,
    ) -> Result<OpenedStore, CommandError> {
        let ReloadContext { database, log, .. } = &self.reload;
        let open = |model: Arc<Model>| {
            let metrics = Metrics::new(&model);
            let store = store::open(database, &model, (log, &metrics), is_patient)?;
            Ok::<_, OpenError>(OpenedStore { model, metrics, store })
        };
        let declared = &loaded.declared;
        let refusal = match open(Arc::clone(declared)) {
            Ok(opened) => return Ok(opened),
            Err(refusal) if !refusal.is_other_model => return Err(refusal.into()),
            Err(refusal) => refusal,
        };
        let mut stored = AdminStore::open_read_only(database, declared)?;
        let Some(model) = retain_stored(&loaded.source, declared, &mut stored)? else {
            return Err(refusal.into());
        };
        drop(stored);
        let opened = open(model)?;
        let message = "the database keeps what the model does not declare, as after a rollback; to delete it, run \
                       nouns plan and nouns migrate";
        let retained = opened.model.retained().collect::<Vec<_>>().join(", ");
        log.event(Level::Warning, message, &[("retained", &retained)]);
        Ok(opened)
    }

    /// Serves until a signal ends it. Applies a changed model by closing the store and opening it with that model,
    /// while new connections wait in the backlog of the sockets.
    fn serve_with_reloads(
        self: &Arc<Self>,
        mut listeners: Vec<Listener>,
        mut loaded: LoadedModel,
        mut opened: OpenedStore,
    ) -> Result<ExitOutcome, CommandError> {
        let accepted = Arc::new(AcceptedModel::default());
        let mut host = None;
        loop {
            let outcome =
                self.serve_model(&mut host, &mut listeners, (&loaded, &accepted), &opened);
            // After a second signal nothing waits: every acknowledged write is on disk, so a kill loses nothing.
            if !matches!(outcome, Ok(ExitOutcome::Forced(_))) {
                opened.store.close();
            }
            let (Ok(ExitOutcome::Reload), Some(host), Some(changed)) =
                (&outcome, host.as_mut(), accepted.take())
            else {
                return outcome;
            };
            drop(opened);
            let (process, previous) = (Arc::clone(self), loaded);
            let reopened = host.run_unless_signalled(move || process.reopen(previous, changed));
            let reopened = match reopened {
                Ok(Ok(reopened)) => reopened,
                // Nothing is served, and every acknowledged write is on disk.
                Ok(Err(signal)) => {
                    self.reload.log.event(Level::Info, "ended by a signal", &[("signal", &signal)]);
                    return Ok(ExitOutcome::Finished);
                }
                Err(error) => Err(error.into()),
            };
            match reopened {
                Ok(reopened) => (loaded, opened) = reopened,
                Err(error) => return Ok(self.end_after_reload(&error)),
            }
            // It may have been replaced while no server watched it.
            if let Some(tls) = &self.tls {
                tls.reload(&self.reload.log);
            }
        }
    }

    /// Ends a process that cannot serve any more, with the exit code after which a service manager starts it again.
    fn end_after_reload(&self, error: &CommandError) -> ExitOutcome {
        const CAUSE: &str = "the server could not be started again after a reload";
        self.reload.log.event(Level::Error, CAUSE, &[("cause", &error.0.trim_end())]);
        ExitOutcome::Broken(CAUSE)
    }

    /// Opens the store with the changed model, or with the previous one.
    fn reopen(
        &self,
        previous: LoadedModel,
        changed: LoadedModel,
    ) -> Result<(LoadedModel, OpenedStore), CommandError> {
        let log = &self.reload.log;
        match self.open_store(&changed, false) {
            Ok(opened) => {
                log.event(Level::Info, "the changed model is applied", &[]);
                Ok((changed, opened))
            }
            Err(error) => {
                let message =
                    "the changed model was not applied, and the previous one is served again";
                log.event(Level::Error, message, &[("cause", &error.0.trim_end())]);
                let opened = self.open_store(&previous, true)?;
                Ok((previous, opened))
            }
        }
    }

    fn serve_model(
        self: &Arc<Self>,
        host: &mut Option<Host>,
        listeners: &mut Vec<Listener>,
        (loaded, accepted): (&LoadedModel, &Arc<AcceptedModel>),
        opened: &OpenedStore,
    ) -> Result<ExitOutcome, CommandError> {
        let OpenedStore { model, metrics, store } = opened;
        let ReloadContext { flags, settings, log, .. } = &self.reload;
        let StartupAuth { auth, login, review, stamp } = self.prepare_auth(model)?;
        log_users_report(log, &login, &review);
        let limits = &model.server.limits;
        let options = self.server_options(opened);
        let admission = Arc::new(AdmissionControl::new(limits));
        let context = FeedContext {
            model: Arc::clone(model),
            log: log.clone(),
            metrics: Arc::clone(metrics),
            admission: Arc::clone(&admission),
        };
        let (feed, feed_thread) = Feed::start(store, context)?;
        let context = WebhookContext {
            model: Arc::clone(model),
            secrets: auth.webhook_secret_opener(),
            log: log.clone(),
            metrics: Arc::clone(&metrics.webhooks),
        };
        let (webhooks, webhooks_thread) = WebhookEngine::start(store, context)?;
        let declared_proxies = model.server.behind_proxy.as_deref();
        let shared = Arc::new(SharedState {
            model: Arc::clone(model),
            auth,
            replies: ReplyBuilder::new(model, &stamp),
            admission,
            feed: Arc::clone(&feed),
            webhooks: Arc::clone(&webhooks),
            log: log.clone(),
            metrics: Arc::clone(metrics),
            listen_names: settings.listen.clone(),
            trusted_proxies: trusted_proxies(&flags.behind_proxy, declared_proxies)?,
            https_port: https_port(listeners),
            hsts: wire::hsts_header(model.server.hsts),
        });
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let app = |_| {
            let store = store.worker(cores)?;
            Ok(App { shared: Arc::clone(&shared), store, metrics: metrics.thread_metrics() })
        };
        let apps = (0..cores).map(app).collect::<Result<Vec<_>, CommandError>>()?;
        drop(shared);
        let is_first = host.is_none();
        let host = match host {
            Some(host) => host,
            None => host.insert(Host::new()?),
        };
        let ready = |addresses: &[SocketAddr]| {
            if is_first {
                self.announce(model, &login, addresses);
            }
        };
        let check = self.reload_check(loaded, listeners, accepted);
        let outcome = host.run(listeners, (options, log.clone()), apps, (ready, check));
        feed.close();
        webhooks.close();
        if !matches!(outcome, ExitOutcome::Forced(_)) {
            // A thread that panicked has logged it.
            let _ = feed_thread.join();
            let _ = webhooks_thread.join();
        }
        Ok(outcome)
    }

    /// Prepares authentication. With `--wait`, it is tried again if the connection to the database is lost. An attempt
    /// skips what an earlier one has stored.
    fn prepare_auth(&self, model: &Arc<Model>) -> Result<StartupAuth, CommandError> {
        let ReloadContext { settings, database, log, .. } = &self.reload;
        let can_be_lost = settings.is_patient && !matches!(**database, Database::Sqlite(_));
        let (mut was_reached, mut has_reported_wait) = (false, false);
        loop {
            let prepared = prepare_auth(database, model, self.key.clone(), settings.is_open, log);
            let error = match prepared {
                Err(error) if can_be_lost => error,
                prepared => return prepared,
            };
            let is_reached = AdminStore::open(database, model).is_ok();
            // The database may have been lost for a moment. A second failure while it is there has another cause.
            if is_reached && was_reached {
                return Err(error);
            }
            was_reached = is_reached;
            if !is_reached && !has_reported_wait {
                has_reported_wait = true;
                let message = "waiting for the database";
                log.event(Level::Warning, message, &[("cause", &error.0.trim_end())]);
            }
            if !is_reached {
                thread::sleep(RECONNECT_INTERVAL);
            }
        }
    }

    fn server_options(&self, opened: &OpenedStore) -> server::ServerOptions {
        let settings = &opened.model.server;
        server::ServerOptions {
            limits: settings.limits,
            http2_prior_knowledge: settings.http2_prior_knowledge.unwrap_or(false),
            base_path: settings.base_path.as_deref().unwrap_or("").into(),
            metrics: Arc::clone(&opened.metrics),
            tls: self.tls.clone(),
            hsts: wire::hsts_header(settings.hsts),
            service_manager: service_manager(),
        }
    }

    fn reload_check(
        self: &Arc<Self>,
        loaded: &LoadedModel,
        listeners: &[Listener],
        accepted: &Arc<AcceptedModel>,
    ) -> ReloadCheck {
        let process = Arc::clone(self);
        let (loaded, accepted) = (loaded.clone(), Arc::clone(accepted));
        let bound = bound_addresses(listeners);
        Arc::new(move || process.reload.check(&loaded, &bound, &accepted))
    }

    /// Prints the addresses, and the first steps on a terminal.
    fn announce(&self, model: &Model, login: &Login, addresses: &[SocketAddr]) {
        announce(&model.title, addresses, self.tls.is_some());
        let mut stderr = std::io::stderr();
        if let (true, Some(address)) = (stderr.is_terminal(), addresses.first()) {
            let place = curl_target(model, *address, self.tls.as_deref());
            print_line(&mut stderr, first_steps::text(model, login, &place));
        }
    }
}

fn service_manager() -> ServiceManager {
    #[expect(clippy::disallowed_methods, reason = "the name that every service manager uses")]
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
    ServiceManager::new(socket)
}

/// Authentication, the facts about the users that the operator has to know, and the stamp of the last migration.
struct StartupAuth {
    auth: Authenticator,
    login: Login,
    /// `None` for an open server.
    review: Option<RoleReview>,
    stamp: String,
}

/// Logs the facts about the users that the operator has to know.
fn log_users_report(log: &Logger, login: &Login, review: &Option<RoleReview>) {
    if let Login::First(first) = login {
        let message = "created the first user, admin; its password is in a file";
        log.event(Level::Info, message, &[("file", &first.file.display())]);
    }
    let Some(review) = review else { return };
    if let Some(roles) = review.undeclared() {
        log.event(
            Level::Warning,
            "users have roles that the model does not declare, and which grant nothing; set others with: \
             nouns user roles",
            &[("roles", &roles), ("users", &review.users), ("such_as", &review.examples())],
        );
    }
    if !review.has_admin {
        let message =
            "no enabled user has the role admin; add one with: nouns user add NAME --role admin";
        log.event(Level::Warning, message, &[]);
    }
}

/// Loads or creates the key and the first user. An open server needs neither.
fn prepare_auth(
    database: &Database,
    model: &Arc<Model>,
    key: Option<KeySource>,
    is_open: bool,
    log: &Logger,
) -> Result<StartupAuth, CommandError> {
    let mut admin_store = AdminStore::open(database, model)?;
    let stamp = admin_store.read_system_value(MIGRATION_STAMP)?.unwrap_or_default();
    if is_open {
        // An existing key that fits seals new passwords.
        let ring = match key.and_then(|key| Some((key.read().ok()??, key))) {
            Some((keys, key)) => {
                let stored = admin_store.read_system_value(FINGERPRINT_NAME)?;
                let fits = stored.is_some_and(|stored| keys.has_fingerprint(&stored));
                fits.then(|| Keyring::new(key, keys))
            }
            None => None,
        };
        let auth = Authenticator::open(model, ring)?;
        return Ok(StartupAuth { auth, login: Login::Open, review: None, stamp });
    }
    let key = key.ok_or_else(|| command_error("there is no key"))?;
    let keys = accounts::load_or_create_keys(&mut admin_store, &key)?;
    let file = password_file(database, &key);
    let login = match first_user::create(&mut admin_store, model, &keys, &file)? {
        Some(first) => Login::First(first),
        None if file.exists() => Login::File(file),
        None => Login::Known,
    };
    let groups = admin_store.role_groups()?;
    let review = Some(RoleReview::new(model, &groups));
    stored_credentials::warn_unusable(&mut admin_store, model, log)?;
    let auth = Authenticator::required(model, Keyring::new(key, keys))?;
    let auth = auth.ok_or_else(|| command_error("the key cannot sign"))?;
    Ok(StartupAuth { auth, login, review, stamp })
}

/// Prints the line on standard output, for each address.
fn announce(title: &str, addresses: &[SocketAddr], is_tls: bool) {
    let scheme = if is_tls { "https" } else { "http" };
    for address in addresses {
        print_line(
            &mut std::io::stdout(),
            format_args!("nouns: serving {title} at {scheme}://{address}"),
        );
    }
}

/// The arguments for `curl` to reach the server.
fn curl_target(model: &Model, address: SocketAddr, tls: Option<&TlsConfig>) -> String {
    let base_path = model.server.base_path.as_deref().unwrap_or_default();
    let Some(tls) = tls else { return format!("http://{address}{base_path}/") };
    if !tls.is_self_signed() {
        let declared = model.server.base_url.as_deref().filter(|base| base.starts_with("https:"));
        return declared.map_or(format!("https://{address}{base_path}/"), |base| {
            format!("{base}{base_path}/")
        });
    }
    // Certificates are issued for names, and the unspecified address is no name.
    let host = match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    };
    format!("--cacert {} https://{host}{base_path}/", shell_quoted(&tls.files().certificate))
}

/// The addresses of each listener.
fn bound_addresses(listeners: &[Listener]) -> Vec<Vec<SocketAddr>> {
    listeners.iter().map(|listener| listener.addresses().to_vec()).collect()
}

/// The HTTPS port, for redirects.
fn https_port(listeners: &[Listener]) -> u16 {
    let first = listeners.first().and_then(|listener| listener.addresses().first());
    first.or_bug("the server listens on an address").port()
}

/// Logs every panic; the code that catches it sends the response.
fn log_panics(log: &Logger) {
    let log = log.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("");
        let thread = thread::current();
        let thread = thread.name().unwrap_or("");
        log.event(
            Level::Error,
            "panic",
            &[("cause", &words), ("place", &place), ("thread", &thread)],
        );
    }));
}
