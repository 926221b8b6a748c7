use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::Error;
use crate::handler::{Handler, Layer};

/// Which handler takes which URN, by its exact text (contract §7.2).
#[derive(Default)]
pub(super) struct Routes {
    by_urn: BTreeMap<String, Route>,
}

/// A URN's handler.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) handler: Arc<dyn Handler>,
    /// Whether it cannot be aborted once it runs.
    pub(super) blocking: bool,
}

impl Route {
    pub(super) fn new(handler: impl Handler) -> Self {
        Self {
            blocking: handler.is_blocking(),
            handler: Arc::new(handler),
        }
    }
}

impl Routes {
    /// Puts each route behind all of the layers; the first layer is the outermost.
    pub(super) fn new(
        routes: Vec<(String, Route)>,
        layers: &[Box<dyn Layer>],
    ) -> Result<Self, Error> {
        let mut by_urn = BTreeMap::new();
        for (urn, mut route) in routes {
            if crate::headers::is_blank(&urn) {
                return Err(Error::config("handle", "has a blank URN"));
            }
            for layer in layers.iter().rev() {
                route.handler = layer.layer(route.handler);
            }
            if by_urn.contains_key(&urn) {
                let problem = format!("was given two handlers for `{urn}`, expected one");
                return Err(Error::config("handle", problem));
            }
            by_urn.insert(urn, route);
        }
        Ok(Self { by_urn })
    }

    pub(super) fn find(&self, urn: &str) -> Option<&Route> {
        self.by_urn.get(urn)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_urn.is_empty()
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_urn.keys()).finish()
    }
}
