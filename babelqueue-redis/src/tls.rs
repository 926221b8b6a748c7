//! `rediss://`, with rustls and the aws-lc-rs provider.

use std::fmt;

use redis::{ClientTlsConfig, TlsCertificates};

/// Certificates as PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) root: Option<Vec<u8>>,
    /// The certificate and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// The client's form of them, or `None` where there are none.
    pub(crate) fn to_client(&self) -> Option<TlsCertificates> {
        if self.root.is_none() && self.client.is_none() {
            return None;
        }
        Some(TlsCertificates {
            client_tls: self.client.clone().map(|(cert, key)| ClientTlsConfig {
                client_cert: cert,
                client_key: key,
            }),
            root_cert: self.root.clone(),
        })
    }
}

/// The key is a secret.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("root", &self.root.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

/// Makes sure that rustls has a provider before the client asks for the process's default: with none,
/// or with two compiled in and none chosen, it panics in a task of its own. A provider that the
/// program has chosen stays.
pub(crate) fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been quicker: then its provider is as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}
