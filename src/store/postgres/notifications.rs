//! Notifications between servers: LISTEN and NOTIFY, as hints that the change log has grown.
//!
//! A hint saves other servers from polling the log often; the log itself stays the only truth. Commits of this
//! process are coalesced into one NOTIFY, which runs in a transaction of its own, outside of all requests: at
//! commit, NOTIFY takes a lock of the whole database. A server that is alone sends none.
//!
//! Behind a transaction-pooling proxy a LISTEN is lost with its transaction, so the server only sends. If the
//! connection is lost, or what this server sends to itself does not arrive, readers poll often again.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_postgres::{AsyncMessage, Client};

use crate::clock;
use crate::log::{Level, Logger};
use crate::model::settings::Pooling;
use crate::store::change_hint::ChangeHint;
use crate::store::postgres::commit_wait::CONNECT_TIMEOUT;
use crate::store::postgres::connect::{ConnectionDriver, OpenConnection, SessionSettings};
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::primary::PrimaryState;
use crate::store::postgres::server_registry::RENEW_EVERY;

/// The pause between two notifications, so that a load of writes sends 50 of them a second.
const SEND_PAUSE: Duration = Duration::from_millis(20);
/// The pause before a new connection.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long this server waits for its own notification.
const ECHO_TIMEOUT: Duration = Duration::from_secs(5);
/// It stops listening when nobody has waited for a hint for at least this long.
const WANTED_CHECK_EVERY: Duration = Duration::from_secs(30);

/// When the other servers know of this one: they look for others at each renewal of their registration.
const KNOWN_AFTER: Duration = RENEW_EVERY.saturating_add(Duration::from_secs(5));

const LISTEN: &str = "LISTEN nouns_changes";
const UNLISTEN: &str = "UNLISTEN nouns_changes";

/// The task that listens for notifications, with the parts of the server that it uses.
#[derive(Debug)]
pub struct ChangeNotifications {
    pub address: Arc<PostgresUrl>,
    pub session: SessionSettings,
    pub primary: Arc<PrimaryState>,
    pub hint: Arc<ChangeHint>,
    pub log: Logger,
    /// Identifies this server, so that it recognizes its own notifications.
    pub server_id: String,
    /// Whether there are other servers.
    pub has_peers: Receiver<bool>,
}

/// One connection, in use until it fails.
struct NotificationConnection {
    client: Client,
    /// The generation of the primary.
    generation: u64,
    incoming: Rc<IncomingNotifications>,
    is_listening: bool,
    /// Whether it listens and receives nothing.
    is_deaf: bool,
    /// When the others know that it listens; `None` from then on.
    known_at: Option<Instant>,
    /// When the echo of a notification is late.
    echo_due: Option<Instant>,
}

/// The events of the connection, set by the task that reads it.
#[derive(Default)]
struct IncomingNotifications {
    has_echo: AtomicBool,
    ended: Notify,
}

impl ChangeNotifications {
    /// Sends and receives notifications. It has no connection until there is something to send or to wait for.
    pub async fn run(mut self) {
        let known_at = clock::now() + KNOWN_AFTER;
        let mut commits = self.hint.subscribe_to_local();
        let mut peers = self.has_peers.clone();
        let mut is_failing = false;
        loop {
            let has_peers = *peers.borrow_and_update();
            let is_wanted = tokio::select! {
                _ = commits.changed(), if has_peers => {
                    // Sent when there is a connection.
                    commits.mark_changed();
                    false
                }
                _ = peers.changed() => continue,
                () = self.hint.remote_wanted() => true,
            };
            let cause = match self.connect(known_at).await {
                Ok(mut connection) => {
                    is_failing = false;
                    self.serve(&mut connection, &mut commits, is_wanted).await
                }
                Err(cause) => cause,
            };
            self.hint.set_remote_hints(false);
            if !std::mem::replace(&mut is_failing, true) {
                let message = "cannot exchange notifications of changes with other servers; they are found by polling";
                self.log.event(Level::Warning, message, &[("cause", &cause)]);
            }
            sleep(RECONNECT_PAUSE).await;
            if is_wanted && self.hint.take_remote_wanted() {
                self.hint.want_remote();
            }
        }
    }

    async fn connect(&self, known_at: Instant) -> Result<NotificationConnection, String> {
        let deadline = clock::now() + CONNECT_TIMEOUT;
        let connected = self.address.connect(&self.session, &self.primary, deadline).await;
        let OpenConnection { client, driver, primary } =
            connected.map_err(|error| error.to_string())?;
        let incoming = Rc::new(IncomingNotifications::default());
        let reader = (Rc::clone(&incoming), Arc::clone(&self.hint), self.server_id.clone());
        tokio::task::spawn_local(async move {
            let (incoming, hint, server_id) = reader;
            incoming.read(driver, &hint, &server_id).await;
            incoming.ended.notify_one();
        });
        Ok(NotificationConnection {
            client,
            generation: primary.generation,
            incoming,
            is_listening: false,
            is_deaf: false,
            known_at: Some(known_at),
            echo_due: None,
        })
    }

    /// Uses a connection until it fails; returns why.
    async fn serve(
        &mut self,
        connection: &mut NotificationConnection,
        commits: &mut Receiver<u64>,
        is_wanted: bool,
    ) -> String {
        let can_listen = self.session.pooling == Pooling::Session;
        let mut next_check = clock::now() + WANTED_CHECK_EVERY;
        if is_wanted
            && can_listen
            && let Err(cause) = self.listen(connection).await
        {
            return cause;
        }
        loop {
            let has_peers = *self.has_peers.borrow_and_update();
            let known_at = connection.known_at.filter(|_| connection.is_listening);
            let done = tokio::select! {
                () = connection.incoming.ended.notified() => Err("the connection was lost".to_owned()),
                // Notifications are sent where the writes are.
                () = self.primary.left(connection.generation) => Err("the server takes no writes any more".to_owned()),
                _ = commits.changed(), if has_peers => {
                    let sent = self.send(connection).await;
                    if sent.is_err() {
                        commits.mark_changed();
                    }
                    sent
                }
                _ = self.has_peers.changed() => Ok(()),
                () = self.hint.remote_wanted(), if can_listen && !connection.is_listening => {
                    self.listen(connection).await
                }
                () = sleep_until(next_check.into()), if connection.is_listening => {
                    next_check = clock::now() + WANTED_CHECK_EVERY;
                    self.stop_listening_if_unwanted(connection).await
                }
                () = wait_until(known_at) => {
                    connection.known_at = None;
                    self.report_state(connection)
                }
                () = wait_until(connection.echo_due) => {
                    self.check_echo(connection);
                    self.report_state(connection)
                }
            };
            if let Err(cause) = done {
                return cause;
            }
        }
    }

    /// Tells readers whether all servers send their hints here.
    fn report_state(&self, connection: &NotificationConnection) -> Result<(), String> {
        let NotificationConnection { is_listening, is_deaf, known_at, .. } = connection;
        self.hint.set_remote_hints(*is_listening && !is_deaf && known_at.is_none());
        Ok(())
    }

    async fn listen(&self, connection: &mut NotificationConnection) -> Result<(), String> {
        connection.execute(LISTEN).await?;
        connection.is_listening = true;
        // Commits before this moment are not announced again.
        self.hint.notify_remote();
        self.report_state(connection)
    }

    async fn stop_listening_if_unwanted(
        &self,
        connection: &mut NotificationConnection,
    ) -> Result<(), String> {
        if self.hint.take_remote_wanted() {
            return Ok(());
        }
        (connection.is_listening, connection.echo_due) = (false, None);
        self.report_state(connection)?;
        connection.execute(UNLISTEN).await
    }

    /// Sends one notification for all commits so far.
    async fn send(&self, connection: &mut NotificationConnection) -> Result<(), String> {
        // A hint that a crash loses is none the worse: it need not wait for the disk or a standby.
        let notify = format!(
            "SELECT set_config('synchronous_commit', 'off', true), pg_notify('nouns_changes', '{}')",
            self.server_id
        );
        connection.execute(&notify).await?;
        if connection.is_listening && connection.echo_due.is_none() {
            connection.echo_due = Some(clock::now() + ECHO_TIMEOUT);
        }
        // One notification covers all commits of the pause.
        sleep(SEND_PAUSE).await;
        Ok(())
    }

    /// A proxy may accept LISTEN and pass nothing on.
    fn check_echo(&self, connection: &mut NotificationConnection) {
        connection.echo_due = None;
        let is_deaf = !connection.incoming.has_echo.swap(false, Ordering::Relaxed);
        if is_deaf && !connection.is_deaf {
            let message =
                "LISTEN delivers no notifications; the change feed polls the database instead";
            self.log.event(Level::Warning, message, &[]);
        }
        connection.is_deaf = is_deaf;
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

impl NotificationConnection {
    async fn execute(&self, sql: &str) -> Result<(), String> {
        match timeout(STATEMENT_TIMEOUT, self.client.batch_execute(sql)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the database did not answer in time".to_owned()),
        }
    }
}

impl IncomingNotifications {
    /// Reads the connection to its end.
    async fn read(&self, mut driver: ConnectionDriver, hint: &ChangeHint, server_id: &str) {
        while let Some(Ok(message)) = poll_fn(|context| driver.poll_message(context)).await {
            let AsyncMessage::Notification(notification) = message else { continue };
            match notification.payload() == server_id {
                true => self.has_echo.store(true, Ordering::Relaxed),
                false => hint.notify_remote(),
            }
        }
    }
}
