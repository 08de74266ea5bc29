//! `nouns serve`: from flags to a running server, or to one message that says why not.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::accounts;
use super::allocator;
use super::cert::shell_quoted;
use super::command_hint::CommandHint;
use super::demo::{self, DemoFolder};
use super::first_steps::{self, Login};
use super::first_user;
use super::model_source::{
    built_in_store, database, find_model, key_source, password_file, read_model,
};
use super::report::{
    CommandError, command_error, internal_error_message, print_line, wants_colours,
};
use super::roles::RoleReview;
use super::serve_args::ServeArgs;
use super::stored_credentials;
use crate::admission::AdmissionControl;
use crate::auth::Authenticator;
use crate::auth::key::FINGERPRINT_NAME;
use crate::auth::key_source::{KeySource, Keyring};
use crate::events::webhook::{WebhookContext, WebhookEngine};
use crate::events::{Feed, FeedContext};
use crate::fault::OrBug as _;
use crate::log::{Level, LogStyle, Logger};
use crate::metrics::Metrics;
use crate::model::settings;
use crate::model::{AuthScheme, Model, Network};
use crate::pipeline::{App, SharedState};
use crate::reply::ReplyBuilder;
use crate::server::tls::{CertificateFiles, TlsConfig};
use crate::server::{self, ExitOutcome, Listener, ListenerKind, ServiceManager};
use crate::store::{self, AdminStore, Database, Store};
use crate::wire;

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

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
    let model = Arc::new(read_model(&source)?);
    let settings = &model.server;
    let demo_database = demo.as_ref().map(DemoFolder::database);
    let database = database(demo_database.as_deref().or(flags.database.as_deref()), &model)?;
    let listen = [
        flags.port.map(|port| format!("127.0.0.1:{port}")).into_iter().collect(),
        flags.listen,
        settings.listen.clone().unwrap_or_default(),
        vec![DEFAULT_LISTEN.to_owned()],
    ];
    let listen = listen.into_iter().find(|addresses| !addresses.is_empty());
    let listen = listen.or_bug("there is a default address");
    let is_open = flags.open.or(settings.open).unwrap_or(false);
    let proxies = trusted_proxies(&flags.behind_proxy, settings.behind_proxy.as_deref())?;
    let is_patient = flags.wait.or(settings.wait).unwrap_or(false);
    let tls = read_tls((flags.tls_cert, flags.tls_key), &model)?.map(Arc::new);
    let redirect = redirect_addresses(flags.redirect, &model, tls.is_some())?;
    // Bind the ports first: releasing them changes nothing.
    let kind = if tls.is_some() { ListenerKind::Tls } else { ListenerKind::Plain };
    let mut listeners = server::bind(&listen, kind)?;
    if is_open {
        require_loopback_for_open(&listen, &listeners, &proxies)?;
    } else if tls.is_none() && proxies.is_empty() {
        require_loopback_for_clear_basic(&model, &listen, &listeners)?;
    }
    listeners.extend(server::bind(&redirect, ListenerKind::Redirect)?);
    let key = key_source(flags.key_file.as_deref(), &model, &database);
    let log = Logger::start(log_style(flags.log, &model))?;
    log_panics(&log);
    let metrics = Metrics::new(&model);
    // A server that needs a key fails before it changes anything.
    let key = if is_open { key.ok() } else { Some(key?) };
    let is_key_named = flags.key_file.is_some() || model.server.key_file.is_some();
    first_user::refuse_lost_database(&database, key.as_ref(), is_key_named)?;
    if let Some(key) = key.as_ref().filter(|_| !is_open) {
        let file = password_file(&database, key);
        first_user::refuse_foreign_file(&database, &model, &file)?;
    }
    if !unknown_variables.is_empty() {
        let message = "unknown NOUNS_ environment variables are ignored";
        log.event(Level::Warning, message, &[("variables", &unknown_variables.join(", "))]);
    }
    let store = store::open(&database, &model, (&log, &metrics), is_patient)?;
    if demo.is_some() {
        demo::fill(&database, &model)?;
    }
    let admission = prepare_auth(&database, &model, key, is_open, &log);
    let outcome = admission.and_then(|admission| {
        serve(&model, (listeners, listen, tls), (&log, &metrics), (&store, admission, proxies))
    });
    // After a second signal nothing waits: every acknowledged write is on disk, so a kill loses nothing.
    if !matches!(outcome, Ok(ExitOutcome::Forced(_))) {
        store.close();
    }
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

fn serve(
    model: &Arc<Model>,
    (listeners, listen, tls): (Vec<Listener>, Vec<String>, Option<Arc<TlsConfig>>),
    (log, metrics): (&Logger, &Arc<Metrics>),
    (store, startup, proxies): (&Store, StartupAuth, Vec<Network>),
) -> Result<ExitOutcome, CommandError> {
    let StartupAuth { auth, login, review } = startup;
    log_users_report(log, &login, &review);
    let limits = &model.server.limits;
    let settings = server::ServerOptions {
        limits: *limits,
        http2_prior_knowledge: model.server.http2_prior_knowledge.unwrap_or(false),
        base_path: model.server.base_path.as_deref().unwrap_or("").into(),
        metrics: Arc::clone(metrics),
        tls: tls.clone(),
        hsts: wire::hsts_header(model.server.hsts),
        service_manager: service_manager(),
    };
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
    let shared = Arc::new(SharedState {
        model: Arc::clone(model),
        auth,
        replies: ReplyBuilder::new(model),
        admission,
        feed: Arc::clone(&feed),
        webhooks: Arc::clone(&webhooks),
        log: log.clone(),
        metrics: Arc::clone(metrics),
        listen_names: listen,
        trusted_proxies: proxies,
        https_port: https_port(&listeners),
        hsts: wire::hsts_header(model.server.hsts),
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let app = |_| {
        let store = store.worker(cores)?;
        Ok(App { shared: Arc::clone(&shared), store, metrics: metrics.thread_metrics() })
    };
    let apps = (0..cores).map(app).collect::<Result<Vec<_>, CommandError>>()?;
    let outcome = server::run(listeners, settings, log.clone(), apps, |addresses| {
        announce(&model.title, addresses, tls.is_some());
        let mut stderr = std::io::stderr();
        if let (true, Some(address)) = (stderr.is_terminal(), addresses.first()) {
            let place = curl_target(model, *address, tls.as_deref());
            print_line(&mut stderr, first_steps::text(model, &login, &place));
        }
    });
    feed.close();
    webhooks.close();
    if !matches!(outcome, ExitOutcome::Forced(_)) {
        // A thread that panicked has logged it.
        let _ = feed_thread.join();
        let _ = webhooks_thread.join();
    }
    Ok(outcome)
}

fn service_manager() -> ServiceManager {
    #[expect(clippy::disallowed_methods, reason = "the name that every service manager uses")]
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
    ServiceManager::new(socket)
}

/// Authentication, and the facts about the users that the operator has to know.
struct StartupAuth {
    auth: Authenticator,
    login: Login,
    /// `None` for an open server.
    review: Option<RoleReview>,
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
    if is_open {
        // An existing key that fits seals new passwords. Most open servers have none, and then the database
        // need not be read.
        let ring = match key.and_then(|key| Some((key.read().ok()??, key))) {
            Some((keys, key)) => {
                let stored = AdminStore::open(database, model)?.read_system_value(FINGERPRINT_NAME);
                let fits = stored?.is_some_and(|stored| keys.has_fingerprint(&stored));
                fits.then(|| Keyring::new(key, keys))
            }
            None => None,
        };
        let auth = Authenticator::open(model, ring)?;
        return Ok(StartupAuth { auth, login: Login::Open, review: None });
    }
    let key = key.ok_or_else(|| command_error("there is no key"))?;
    let mut admin_store = AdminStore::open(database, model)?;
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
    Ok(StartupAuth { auth, login, review })
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

/// The HTTPS port, for redirects.
fn https_port(listeners: &[Listener]) -> u16 {
    let first = listeners.first().and_then(|listener| listener.addresses().first());
    first.or_bug("the server listens on an address").port()
}

/// The certificate, if there is one; both of its files are named, or none.
pub fn read_tls(
    (certificate, key): (Option<PathBuf>, Option<PathBuf>),
    model: &Model,
) -> Result<Option<TlsConfig>, CommandError> {
    let certificate = certificate.or(model.server.tls_cert.as_ref().map(PathBuf::from));
    let key = key.or(model.server.tls_key.as_ref().map(PathBuf::from));
    let alone = |given: &str, other: &str, what: &str| {
        Err(command_error(format!(
            "{given} alone is not enough: name {what} by {other} as well, or create a self-signed pair with: \
             nouns cert"
        )))
    };
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => alone("--tls-cert", "--tls-key", "the key of the certificate"),
        (None, Some(_)) => alone("--tls-key", "--tls-cert", "the certificate of the key"),
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsConfig::read(CertificateFiles { certificate, key })?))
        }
    }
}

/// The addresses that redirect to HTTPS, which requires a certificate.
fn redirect_addresses(
    flags: Vec<String>,
    model: &Model,
    is_tls: bool,
) -> Result<Vec<String>, CommandError> {
    let declared = model.server.redirect.clone().unwrap_or_default();
    let addresses = if flags.is_empty() { declared } else { flags };
    let base_url = model.server.base_url.as_deref().unwrap_or_default();
    match (addresses.first(), is_tls) {
        (None, _) => Ok(addresses),
        (Some(address), false) => Err(command_error(format!(
            "--redirect {address} redirects to HTTPS, which is not served; name a certificate by \
             --tls-cert and --tls-key, or create a self-signed pair with: nouns cert"
        ))),
        (Some(address), true) if base_url.starts_with("http:") => Err(command_error(format!(
            "--redirect {address} redirects to HTTPS, but base_url is {base_url}; let base_url begin \
             with https://"
        ))),
        (Some(_), true) => Ok(addresses),
    }
}

/// An address that other machines can reach.
fn find_non_loopback<'a>(listen: &'a [String], listeners: &[Listener]) -> Option<&'a String> {
    let is_strange = |listener: &Listener| {
        listener.addresses().iter().any(|address| !address.ip().is_loopback())
    };
    let found = listen.iter().zip(listeners).find(|(_, listener)| is_strange(listener));
    found.map(|(address, _)| address)
}

/// Trusted proxies: by the flag or the environment, else by the model.
fn trusted_proxies(
    flags: &[String],
    model: Option<&[Network]>,
) -> Result<Vec<Network>, CommandError> {
    if flags.is_empty() {
        return Ok(model.unwrap_or_default().to_vec());
    }
    let parsed = flags.iter().map(|text| Network::parse(text.trim()));
    parsed
        .collect::<Result<_, _>>()
        .map_err(|fault| command_error(format!("--behind-proxy: {fault}")))
}

fn require_loopback_for_open(
    listen: &[String],
    listeners: &[Listener],
    proxies: &[Network],
) -> Result<(), CommandError> {
    if let Some(network) = proxies.first() {
        return Err(command_error(format!(
            "--open lets everyone do everything, and behind a proxy ({network}) that is everyone who reaches the proxy; \
             leave out --behind-proxy or --open"
        )));
    }
    match find_non_loopback(listen, listeners) {
        None => Ok(()),
        Some(address) => Err(command_error(format!(
            "--open lets everyone do everything, so it listens on this machine alone: \
             {address} is not a loopback address; use --listen {DEFAULT_LISTEN}"
        ))),
    }
}

/// Basic without TLS is allowed on loopback addresses only.
fn require_loopback_for_clear_basic(
    model: &Model,
    listen: &[String],
    listeners: &[Listener],
) -> Result<(), CommandError> {
    let Some(realm) = model.realms.iter().find(|realm| realm.schemes.contains(&AuthScheme::Basic))
    else {
        return Ok(());
    };
    match find_non_loopback(listen, listeners) {
        None => Ok(()),
        Some(address) => Err(command_error(format!(
            "the realm \"{}\" offers Basic, which sends passwords in clear, and {address} can be reached from \
             other machines; serve HTTPS with --tls-cert and --tls-key (nouns cert creates a self-signed pair), say \
             --behind-proxy where a proxy terminates TLS, listen on a loopback address, or declare \
             schemes = [\"digest\"] for the realm",
            realm.name
        ))),
    }
}

fn log_style(flag: Option<settings::LogFormat>, model: &Model) -> LogStyle {
    let stderr = std::io::stderr();
    let by_default =
        if stderr.is_terminal() { settings::LogFormat::Pretty } else { settings::LogFormat::Json };
    match flag.or(model.server.log).unwrap_or(by_default) {
        settings::LogFormat::Pretty => LogStyle::Pretty { colour: wants_colours(&stderr) },
        settings::LogFormat::Json => LogStyle::Json,
    }
}

/// Logs every panic; the code that catches it sends the response.
fn log_panics(log: &Logger) {
    let log = log.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("");
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("");
        log.event(
            Level::Error,
            "panic",
            &[("cause", &words), ("place", &place), ("thread", &thread)],
        );
    }));
}
