use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::backoff::Backoff;
use super::routes::Routes;
use crate::Error;
use crate::decide::{Policy, UnknownUrn};
use crate::transport::{Capabilities, Delay, SubscribeOptions};

/// A worker's settings as they were given.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) queues: Vec<(Arc<str>, Option<Policy>)>,
    pub(super) policy: Policy,
    pub(super) concurrency: usize,
    pub(super) prefetch: Option<usize>,
    pub(super) shutdown_timeout: Duration,
    pub(super) flush_timeout: Duration,
    pub(super) reconnect_first: Duration,
    pub(super) reconnect_cap: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            policy: Policy::default(),
            concurrency: 1,
            prefetch: None,
            shutdown_timeout: Duration::from_secs(30),
            flush_timeout: Duration::from_secs(5),
            reconnect_first: Duration::from_millis(100),
            reconnect_cap: Duration::from_secs(10),
        }
    }
}

/// The settings, held against each other and against the transport.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) queues: Vec<QueuePlan>,
    pub(super) concurrency: usize,
    pub(super) prefetch: usize,
    pub(super) settle_calls: usize,
    pub(super) shutdown_timeout: Duration,
    pub(super) flush_timeout: Duration,
    pub(super) backoff: Backoff,
}

#[derive(Debug)]
pub(super) struct QueuePlan {
    pub(super) name: Arc<str>,
    pub(super) policy: Policy,
    pub(super) dead_letter_queue: Arc<str>,
    pub(super) options: SubscribeOptions,
}

impl Settings {
    /// Checks everything that can be checked before the broker is asked.
    pub(super) fn plan(self, capabilities: &Capabilities) -> Result<Plan, Error> {
        let concurrency = self.concurrency;
        if concurrency == 0 {
            return Err(Error::config("concurrency", "is 0, expected at least 1"));
        }
        let prefetch = self
            .prefetch
            .unwrap_or_else(|| capabilities.prefetch.for_concurrency(concurrency));
        if prefetch < concurrency {
            let problem =
                format!("is {prefetch}, expected at least the concurrency, {concurrency}");
            return Err(Error::config("prefetch", problem));
        }
        if self.reconnect_first.is_zero() || self.reconnect_first > self.reconnect_cap {
            let problem = format!(
                "is {:?} at first and at most {:?}, expected more than nothing, and no less at most",
                self.reconnect_first, self.reconnect_cap
            );
            return Err(Error::config("reconnect", problem));
        }
        let mut queues: Vec<QueuePlan> = Vec::new();
        for (name, policy) in self.named_queues() {
            if name.is_empty() {
                return Err(Error::config("queue", "is empty, expected a name"));
            }
            if queues.iter().any(|known| known.name == name) {
                let problem = format!("`{name}` was named twice, expected once");
                return Err(Error::config("queue", problem));
            }
            queues.push(QueuePlan::new(name, policy, prefetch, capabilities)?);
        }
        refuse_rings(&queues)?;
        Ok(Plan {
            queues,
            concurrency,
            prefetch,
            settle_calls: capabilities.settle_calls,
            shutdown_timeout: self.shutdown_timeout,
            flush_timeout: self.flush_timeout,
            backoff: Backoff::new(self.reconnect_first, self.reconnect_cap),
        })
    }

    /// The queues with their policies; `default` where none was named (contract §7.1).
    pub(super) fn named_queues(&self) -> Vec<(Arc<str>, Policy)> {
        if self.queues.is_empty() {
            return vec![(Arc::from("default"), self.policy.clone())];
        }
        self.queues
            .iter()
            .map(|(name, own)| {
                let policy = own.as_ref().unwrap_or(&self.policy);
                (Arc::clone(name), policy.clone())
            })
            .collect()
    }
}

impl QueuePlan {
    fn new(
        name: Arc<str>,
        policy: Policy,
        prefetch: usize,
        capabilities: &Capabilities,
    ) -> Result<Self, Error> {
        let rules = capabilities.rules;
        policy.validate(&name, rules)?;
        let dead_letter_queue: Arc<str> = policy.dead_letter_queue_for(&name, rules)?.into();
        let mut options =
            SubscribeOptions::with_prefetch(prefetch).scope_share(scope_share(prefetch));
        if policy.may_dead_letter(rules) {
            options = options.dead_letter(Arc::clone(&dead_letter_queue));
        }
        if !may_retry(&policy) {
            options = options.without_retries();
        }
        Ok(Self {
            name,
            policy,
            dead_letter_queue,
            options,
        })
    }
}

/// Refuses dead-letter queues that lead back to where they began: what fails in all of them would go
/// round for ever.
fn refuse_rings(queues: &[QueuePlan]) -> Result<(), Error> {
    let next = |from: &QueuePlan| {
        let target = from.options.dead_letter.as_ref()?;
        queues.iter().find(|queue| queue.name == *target)
    };
    for first in queues {
        let mut way = format!("`{}`", first.name);
        let mut at = first;
        // A way that does not lead back to its first queue ends, or runs into another ring.
        for _ in queues {
            let Some(queue) = next(at) else { break };
            let _ = write!(way, " to `{}`", queue.name);
            if queue.name == first.name {
                let problem = format!("leads in a ring, {way}, expected one with an end");
                return Err(Error::config("dead_letter_queue", problem));
            }
            at = queue;
        }
    }
    Ok(())
}

/// Whether a message can be sent round again at all: the one delivery may be the last, and only what
/// is given back for others is, on some brokers, a retry too.
fn may_retry(policy: &Policy) -> bool {
    policy.retry.max_attempts() > 1 || policy.on_unknown_urn == UnknownUrn::Release
}

/// Says what of the settings this broker cannot do, once and before the first message.
pub(super) fn warn_at_start(plan: &Plan, routes: &Routes, capabilities: &Capabilities) {
    let broker = capabilities.broker;
    if routes.is_empty() {
        warn!(broker, "no handler is registered: every URN is unknown");
    }
    for queue in &plan.queues {
        let name = &*queue.name;
        info!(
            broker,
            queue = name,
            concurrency = plan.concurrency,
            "the worker starts"
        );
        for warning in unmet(&queue.policy, capabilities) {
            warn!(broker, queue = name, "{warning}");
        }
    }
}

/// What of a policy the broker cannot do.
fn unmet(policy: &Policy, capabilities: &Capabilities) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if !capabilities.rules.backoff && !policy.retry.delay(1, 1.0).is_zero() {
        warnings.push(match capabilities.delay {
            Delay::Tiers => "the retry back-off is ignored: the broker's own tiers delay a retry",
            _ => "the retry back-off is ignored: a retry comes at once",
        });
    }
    if !capabilities.rules.backoff
        && policy.on_unknown_urn == UnknownUrn::Release
        && !policy.unknown_urn_release_delay.is_zero()
    {
        warnings.push("the release delay of unknown URNs is ignored");
    }
    warnings
}

/// How much of the prefetch one lane's scope may hold: an eighth, which in a deep buffer still is
/// twice what the handlers run; but 2 where there is room for 2, so that a lane on its own need not
/// wait for a round trip between two messages.
fn scope_share(prefetch: usize) -> usize {
    (prefetch / 8).max(2).min(prefetch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Retry;
    use crate::transport::{Prefetch, Rules};

    fn capabilities() -> Capabilities {
        Capabilities::new("test", Rules::MEMORY)
    }

    fn problem(settings: Settings) -> String {
        let error = settings.plan(&capabilities()).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        error.to_string()
    }

    #[test]
    fn the_defaults_are_the_contracts() {
        let plan = Settings::default().plan(&capabilities()).unwrap();
        assert_eq!(plan.shutdown_timeout, Duration::from_secs(30));
        let [queue] = &*plan.queues else { panic!() };
        assert_eq!(&*queue.name, "default");
        assert_eq!(queue.policy, Policy::default());
        assert_eq!(&*queue.dead_letter_queue, "default.dlq");
        assert_eq!(queue.options.dead_letter, None);
        assert_eq!((plan.concurrency, plan.prefetch), (1, 1));
    }

    #[test]
    fn what_cannot_be_is_named_before_the_start() {
        let base = Settings::default();
        let named = |name: &str| (Arc::from(name), None);
        for (settings, expected) in [
            (
                Settings {
                    concurrency: 0,
                    ..base.clone()
                },
                "invalid configuration: `concurrency` is 0, expected at least 1",
            ),
            (
                Settings {
                    concurrency: 4,
                    prefetch: Some(3),
                    ..base.clone()
                },
                "invalid configuration: `prefetch` is 3, expected at least the concurrency, 4",
            ),
            (
                Settings {
                    queues: vec![named("a"), named("a")],
                    ..base.clone()
                },
                "invalid configuration: `queue` `a` was named twice, expected once",
            ),
            (
                Settings {
                    queues: vec![named("")],
                    ..base.clone()
                },
                "invalid configuration: `queue` is empty, expected a name",
            ),
            (
                Settings {
                    reconnect_first: Duration::ZERO,
                    ..base.clone()
                },
                "invalid configuration: `reconnect` is 0ns at first and at most 10s, \
                 expected more than nothing, and no less at most",
            ),
        ] {
            assert_eq!(problem(settings), expected);
        }
        let policy = Policy::default().retry(Retry::attempts(0));
        assert!(
            problem(Settings {
                policy,
                ..base.clone()
            })
            .contains("max_attempts")
        );
        let policy = Policy::default().dead_letter_queue("a");
        let queues = vec![(Arc::from("a"), Some(policy))];
        assert!(problem(Settings { queues, ..base }).contains("dead_letter_queue"));
    }

    #[test]
    fn dead_letter_queues_that_lead_in_a_ring_are_refused() {
        let dead = |queue: &str| Policy::default().dead_letter(true).dead_letter_queue(queue);
        let queues = |ways: &[(&str, &str)]| Settings {
            queues: (ways.iter())
                .map(|(from, to)| (Arc::from(*from), Some(dead(to))))
                .collect(),
            ..Settings::default()
        };
        let ring = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")];
        assert_eq!(
            problem(queues(&ring)),
            "invalid configuration: `dead_letter_queue` leads in a ring, \
             `a` to `b` to `c` to `a`, expected one with an end"
        );
        let chain = [("x", "a"), ("a", "b"), ("b", "c")];
        assert!(queues(&chain).plan(&capabilities()).is_ok());
        // With dead-lettering off nothing goes there.
        let mut off = queues(&[("a", "b")]);
        let policy = dead("a").dead_letter(false);
        off.queues.push((Arc::from("b"), Some(policy)));
        assert!(off.plan(&capabilities()).is_ok());
    }

    #[test]
    fn a_queue_has_its_own_policy_or_the_workers() {
        let own = Policy::default()
            .dead_letter(true)
            .dead_letter_suffix(".dead");
        let settings = Settings {
            queues: vec![(Arc::from("a"), Some(own.clone())), (Arc::from("b"), None)],
            policy: Policy::default().retry(Retry::attempts(9)),
            ..Settings::default()
        };
        let plan = settings.plan(&capabilities()).unwrap();
        let [a, b] = &*plan.queues else { panic!() };
        assert_eq!(a.policy, own);
        assert_eq!(a.options.dead_letter.as_deref(), Some("a.dead"));
        assert_eq!(b.policy.retry.max_attempts(), 9);
        assert_eq!(b.options.dead_letter, None);
    }

    #[test]
    fn a_broker_is_told_where_nothing_is_retried() {
        let retries = |policy| {
            let settings = Settings {
                policy,
                ..Settings::default()
            };
            settings.plan(&capabilities()).unwrap().queues[0]
                .options
                .retries
        };
        let once = Policy::default().retry(Retry::attempts(1));
        assert!(retries(Policy::default()));
        assert!(!retries(once.clone()));
        assert!(retries(once.on_unknown_urn(UnknownUrn::Release)));
    }

    #[test]
    fn the_buffer_goes_by_the_broker_unless_it_is_set() {
        let mut deep = capabilities();
        deep.prefetch = Prefetch::Deep;
        let settings = Settings {
            concurrency: 64,
            ..Settings::default()
        };
        let prefetch = |settings: &Settings, capabilities: &Capabilities| {
            let plan = settings.clone().plan(capabilities).unwrap();
            let options = &plan.queues[0].options;
            (options.prefetch, options.scope_share)
        };
        assert_eq!(prefetch(&settings, &capabilities()), (128, 16));
        assert_eq!(prefetch(&settings, &deep), (1024, 128));
        let set = Settings {
            prefetch: Some(64),
            ..settings
        };
        assert_eq!(prefetch(&set, &deep), (64, 8));
    }

    #[test]
    fn a_scope_of_a_deep_buffer_can_keep_every_handler_busy_alone() {
        for concurrency in [1, 8, 64, 200] {
            let prefetch = Prefetch::Deep.for_concurrency(concurrency);
            assert!(scope_share(prefetch) >= 2 * concurrency);
        }
        assert_eq!([1, 2, 4, 64].map(scope_share), [1, 2, 2, 8]);
    }

    #[test]
    fn what_the_broker_cannot_do_is_said() {
        let policy = Policy::default()
            .retry(Retry::attempts(3).backoff(Duration::from_secs(1), 2.0))
            .on_unknown_urn(UnknownUrn::Release)
            .unknown_urn_release_delay(Duration::from_secs(1));
        assert!(unmet(&policy, &capabilities()).is_empty());
        let redis = Capabilities::new("redis", Rules::REDIS);
        assert_eq!(unmet(&policy, &redis).len(), 2);
        assert!(unmet(&Policy::default(), &redis).is_empty());
        let mut kafka = Capabilities::new("kafka", Rules::KAFKA);
        kafka.delay = Delay::Tiers;
        assert!(unmet(&policy, &kafka)[0].contains("tiers"));
    }
}
