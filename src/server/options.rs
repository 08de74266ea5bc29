//! The options of a server, from its command line and its model.

use std::sync::Arc;

use http::HeaderValue;

use super::sd_notify::ServiceManager;
use super::tls::TlsConfig;
use crate::metrics::Metrics;
use crate::model::settings::ServerLimits;

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub limits: ServerLimits,
    /// HTTP/2 without TLS, for clients with prior knowledge.
    pub http2_prior_knowledge: bool,
    /// The deployment's prefix of every path; may be empty.
    pub base_path: Arc<str>,
    pub metrics: Arc<Metrics>,
    pub tls: Option<Arc<TlsConfig>>,
    /// The `Strict-Transport-Security` header, if it is configured.
    pub hsts: Option<HeaderValue>,
    pub service_manager: ServiceManager,
}
