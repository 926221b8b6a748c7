use std::sync::Arc;

use super::from_fn;
use crate::handler::{Failure, Handler, Layer};
use crate::schema::{self, Provider};

/// Holds `data` against the schema of its URN before the handler runs; a violation is a failure
/// ([`InvalidPayload`](schema::InvalidPayload)). A URN without a schema is not checked.
#[derive(Debug, Clone)]
pub struct ValidatePayload {
    schemas: Arc<dyn Provider>,
}

impl ValidatePayload {
    /// Checks with these schemas.
    pub fn new(schemas: Arc<dyn Provider>) -> Self {
        Self { schemas }
    }
}

impl Layer for ValidatePayload {
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let schemas = Arc::clone(&self.schemas);
        let check = from_fn(move |context, inner: Arc<dyn Handler>| {
            let checked = schema::check(&*schemas, context.envelope());
            async move {
                checked.map_err(|invalid| Failure::named(invalid, "InvalidPayload"))?;
                inner.call(context).await
            }
        });
        check.layer(inner)
    }
}
