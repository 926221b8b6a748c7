//! The two layouts, and the keys that a queue has in each (contract §11).

/// How a queue lies in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// The SDKs' own reliable queue (contract §11A): the list `<q>`, in flight in `<q>:processing`
    /// with a deadline each in `<q>:processing:deadlines`. Carries headers; has no delay.
    #[default]
    Sdk,
    /// Laravel's own (contract §11B): the list `queues:<q>`, with `:delayed`, `:reserved` and
    /// `:notify`. Has delay; carries no headers.
    Laravel,
}

/// The prefix of the Laravel layout, unless another is set.
pub(crate) const LARAVEL_PREFIX: &str = "queues:";

/// The keys of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keys {
    /// In [`Layout::Sdk`].
    Sdk {
        /// The list that is consumed from its head.
        ready: String,
        /// The list of what is in flight.
        processing: String,
        /// The sorted set of `<token>:<raw>` by the second at which each may be given out again.
        deadlines: String,
    },
    /// In [`Layout::Laravel`].
    Laravel {
        /// The list that is consumed from its head.
        ready: String,
        /// The sorted set of what is not due yet.
        delayed: String,
        /// The sorted set of what is in flight.
        reserved: String,
        /// The list of wake-up tokens.
        notify: String,
    },
}

impl Keys {
    /// The keys of the logical `queue`. `prefix` counts in the Laravel layout alone. Case and dots
    /// stay as they are.
    pub fn new(layout: Layout, prefix: &str, queue: &str) -> Self {
        match layout {
            Layout::Sdk => Self::Sdk {
                ready: queue.to_owned(),
                processing: format!("{queue}:processing"),
                deadlines: format!("{queue}:processing:deadlines"),
            },
            Layout::Laravel => {
                let ready = format!("{prefix}{queue}");
                Self::Laravel {
                    delayed: format!("{ready}:delayed"),
                    reserved: format!("{ready}:reserved"),
                    notify: format!("{ready}:notify"),
                    ready,
                }
            }
        }
    }

    /// The list that is consumed from its head.
    pub fn ready(&self) -> &str {
        match self {
            Self::Sdk { ready, .. } | Self::Laravel { ready, .. } => ready,
        }
    }

    /// A key that `other` has too.
    pub(crate) fn in_common(&self, other: &Self) -> Option<&str> {
        self.iter().find(|key| other.iter().any(|its| its == *key))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (three, fourth) = match self {
            Self::Sdk {
                ready,
                processing,
                deadlines,
            } => ([ready, processing, deadlines], None),
            Self::Laravel {
                ready,
                delayed,
                reserved,
                notify,
            } => ([ready, delayed, reserved], Some(notify)),
        };
        three.into_iter().chain(fourth).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_layout_ignores_the_prefix() {
        let keys = Keys::new(Layout::Sdk, LARAVEL_PREFIX, "Orders.High");
        assert_eq!(
            keys.iter().collect::<Vec<_>>(),
            [
                "Orders.High",
                "Orders.High:processing",
                "Orders.High:processing:deadlines"
            ]
        );
    }

    #[test]
    fn what_two_queues_have_in_common_is_found() {
        let in_common = |layout, other: &str| {
            let keys = Keys::new(layout, "p:", "q");
            keys.in_common(&Keys::new(layout, "p:", other))
                .map(str::to_owned)
        };
        for (layout, other, key) in [
            (Layout::Sdk, "q:processing", Some("q:processing")),
            (
                Layout::Sdk,
                "q:processing:deadlines",
                Some("q:processing:deadlines"),
            ),
            (Layout::Sdk, "q:delayed", None),
            (Layout::Sdk, "q.dlq", None),
            (Layout::Laravel, "q:delayed", Some("p:q:delayed")),
            (Layout::Laravel, "q:reserved", Some("p:q:reserved")),
            (Layout::Laravel, "q:notify", Some("p:q:notify")),
            (Layout::Laravel, "q:processing", None),
            (Layout::Laravel, "q.dlq", None),
        ] {
            assert_eq!(in_common(layout, other).as_deref(), key, "{other}");
        }
        let ours = Keys::new(Layout::Sdk, "", "q:processing");
        assert_eq!(
            ours.in_common(&Keys::new(Layout::Sdk, "", "q")),
            Some("q:processing")
        );
    }

    #[test]
    fn the_laravel_layout_has_four_keys_under_its_prefix() {
        let keys = Keys::new(Layout::Laravel, "p:", "orders");
        assert_eq!(
            keys.iter().collect::<Vec<_>>(),
            [
                "p:orders",
                "p:orders:delayed",
                "p:orders:reserved",
                "p:orders:notify"
            ]
        );
    }
}
