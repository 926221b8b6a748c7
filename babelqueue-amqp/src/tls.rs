use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};

/// Whom to trust, and who we are.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) ca_certificates: Option<String>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// As the client takes it.
    pub(crate) fn to_config(&self) -> OwnedTLSConfig {
        OwnedTLSConfig {
            identity: self
                .client
                .clone()
                .map(|(pem, key)| OwnedIdentity::PKCS8 { pem, key }),
            cert_chain: self.ca_certificates.clone(),
        }
    }
}
