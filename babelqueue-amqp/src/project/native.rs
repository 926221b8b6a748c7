use babelqueue_core::envelope::Projection;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::{ATTEMPTS, BROKERS_OWN, SCHEMA_VERSION, SOURCE_LANG};

/// AMQP's properties, open for change.
#[derive(Default)]
pub(super) struct Native {
    pub(super) content_type: Option<ShortString>,
    pub(super) content_encoding: Option<ShortString>,
    pub(super) headers: Table,
    pub(super) priority: Option<u8>,
    pub(super) correlation_id: Option<ShortString>,
    pub(super) reply_to: Option<ShortString>,
    pub(super) expiration: Option<ShortString>,
    pub(super) message_id: Option<ShortString>,
    pub(super) timestamp: Option<u64>,
    pub(super) kind: Option<ShortString>,
    pub(super) app_id: Option<ShortString>,
    pub(super) cluster_id: Option<ShortString>,
}

impl Native {
    /// The received properties that a copy carries: all but the broker's own, and the user id, which
    /// the broker only takes from that very user.
    pub(super) fn of(received: &BasicProperties) -> Self {
        let table = received.headers().as_ref();
        let headers = table.into_iter().flat_map(FieldTable::inner);
        let headers = headers.filter(|(name, _)| !BROKERS_OWN.contains(name.as_str()));
        Self {
            content_type: received.content_type().clone(),
            content_encoding: received.content_encoding().clone(),
            headers: Table(
                headers
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
            priority: *received.priority(),
            correlation_id: received.correlation_id().clone(),
            reply_to: received.reply_to().clone(),
            expiration: received.expiration().clone(),
            message_id: received.message_id().clone(),
            timestamp: *received.timestamp(),
            kind: received.kind().clone(),
            app_id: received.app_id().clone(),
            cluster_id: received.cluster_id().clone(),
        }
    }

    /// Sets what the body says; a member that is not there, or too long for a property, changes
    /// nothing.
    pub(super) fn project(&mut self, body: &Projection<'_>) {
        let set = |property: &mut Option<ShortString>, member: Option<&str>| {
            if let Some(short) = member.and_then(|text| ShortString::try_new(text).ok()) {
                *property = Some(short);
            }
        };
        set(&mut self.kind, body.urn.as_deref());
        set(&mut self.correlation_id, body.trace_id.as_deref());
        set(&mut self.message_id, body.id.as_deref());
        if let Some(version) = body.schema_version {
            self.headers.insert(SCHEMA_VERSION.into(), integer(version));
        }
        if let Some(lang) = body.lang.as_deref() {
            self.headers
                .insert(SOURCE_LANG.into(), AMQPValue::LongString(lang.into()));
        }
        if let Some(attempts) = body.attempts {
            self.headers.insert(ATTEMPTS.into(), integer(attempts));
        }
    }

    pub(super) fn name_the_format(&mut self) {
        self.app_id = Some("babelqueue".into());
        self.content_type = Some("application/json".into());
        self.content_encoding = Some("utf-8".into());
    }

    pub(super) fn count(&mut self, attempts: u32) {
        self.headers
            .insert(ATTEMPTS.into(), integer(i64::from(attempts)));
    }

    pub(super) fn into_properties(self) -> BasicProperties {
        // 2 is persistent.
        let mut all = BasicProperties::default().with_delivery_mode(2);
        macro_rules! set {
            ($($field:ident: $with:ident),* $(,)?) => {
                $(if let Some(value) = self.$field {
                    all = all.$with(value);
                })*
            };
        }
        set! {
            content_type: with_content_type,
            content_encoding: with_content_encoding,
            priority: with_priority,
            correlation_id: with_correlation_id,
            reply_to: with_reply_to,
            expiration: with_expiration,
            message_id: with_message_id,
            timestamp: with_timestamp,
            kind: with_type,
            app_id: with_app_id,
            cluster_id: with_cluster_id,
        }
        if !self.headers.0.is_empty() {
            all = all.with_headers(self.headers.0.into());
        }
        all
    }
}

#[derive(Default)]
pub(super) struct Table(std::collections::BTreeMap<ShortString, AMQPValue>);

impl Table {
    pub(super) fn insert(&mut self, name: ShortString, value: AMQPValue) {
        self.0.insert(name, value);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}

/// A whole number in the width that other clients use, if it fits.
fn integer(number: i64) -> AMQPValue {
    match i32::try_from(number) {
        Ok(number) => AMQPValue::LongInt(number),
        Err(_) => AMQPValue::LongLongInt(number),
    }
}
