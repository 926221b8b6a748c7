//! The URL form. Our own keys are taken out before the client sees the rest.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use babelqueue_core::Error;
use redis::{ConnectionAddr, ConnectionInfo};
use url::Url;

use super::{Config, connection_info, lease_seconds, within_limits};
use crate::Layout;

/// The keys that are ours, in the order in which an error lists them.
const OURS: [&str; 11] = [
    "layout",
    "laravel",
    "laravel_compat",
    "prefix",
    "retry_after",
    "migration_batch_size",
    "server_time",
    "response_timeout_ms",
    "connect_timeout_ms",
    "cluster",
    "node",
];

/// The client's own keys.
const CLIENTS: [&str; 4] = ["protocol", "db", "user", "pass"];

pub(super) fn read(text: &str) -> Result<Config, Error> {
    let mut url = Url::parse(text)
        .map_err(|error| Error::config("url", format_args!("does not parse: {error}")))?;
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    check_names(&pairs)?;
    keep_only(&mut url, &pairs, &CLIENTS);
    check_scheme(&url)?;

    let mut config = Config::at(connection_info(&url)?);
    config.protocol_is_fixed = has(&pairs, "protocol");
    for (key, value) in &pairs {
        config = set(config, key, value)?;
    }
    if flag_of(&pairs, "cluster")? {
        let nodes = pairs
            .iter()
            .filter(|(key, _)| key == "node")
            .map(|(_, node)| node.as_str());
        config = config.cluster(nodes)?;
    } else if has(&pairs, "node") {
        return Err(Error::config(
            "node",
            "is only for a cluster; add `cluster=1`",
        ));
    }
    Ok(config)
}

/// One more node of the cluster that `first` is of.
pub(super) fn node(first: &ConnectionInfo, address: &str) -> Result<ConnectionInfo, Error> {
    let problem = || Error::config("node", format_args!("is `{address}`; expected `host:port`"));
    let (host, port) = address.rsplit_once(':').ok_or_else(problem)?;
    let port = port.parse().map_err(|_| problem())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(problem());
    }
    let mut addr = first.addr().clone();
    match &mut addr {
        ConnectionAddr::Tcp(h, p)
        | ConnectionAddr::TcpTls {
            host: h, port: p, ..
        } => {
            (*h, *p) = (host.to_owned(), port);
        }
        _ => return Err(Error::config("cluster", "has no unix sockets")),
    }
    Ok(first.clone().set_addr(addr))
}

fn set(mut config: Config, key: &str, value: &str) -> Result<Config, Error> {
    match key {
        "layout" => config.layout = layout(value)?,
        "laravel" | "laravel_compat" if flag("laravel", value)? => {
            config.layout = Layout::Laravel;
        }
        // An empty prefix counts as unset, as with the peers.
        "prefix" if !value.is_empty() => config.prefix = value.into(),
        "retry_after" => config.retry_after = retry_after(value)?,
        "migration_batch_size" => config.migration_batch_size = batch_size(value)?,
        "server_time" if flag("server_time", value)? => config = config.server_time(),
        "response_timeout_ms" => config.response_timeout = millis("response_timeout_ms", value)?,
        "connect_timeout_ms" => config.connect_timeout = millis("connect_timeout_ms", value)?,
        _ => {}
    }
    Ok(config)
}

fn check_names(pairs: &[(String, String)]) -> Result<(), Error> {
    for (at, (key, _)) in pairs.iter().enumerate() {
        if !OURS.contains(&key.as_str()) && !CLIENTS.contains(&key.as_str()) {
            return Err(Error::config(
                "url",
                format_args!(
                    "has the unknown key `{key}`; known are {}",
                    listed(OURS.iter().chain(&CLIENTS))
                ),
            ));
        }
        if key != "node" && pairs[..at].iter().any(|(earlier, _)| earlier == key) {
            return Err(Error::config(
                "url",
                format_args!("has the key `{key}` twice"),
            ));
        }
    }
    Ok(())
}

fn listed<'k>(keys: impl Iterator<Item = &'k &'static str>) -> String {
    let quoted: Vec<_> = keys.map(|key| format!("`{key}`")).collect();
    quoted.join(", ")
}

fn keep_only(url: &mut Url, pairs: &[(String, String)], keys: &[&str]) {
    url.set_query(None);
    let kept: Vec<_> = pairs
        .iter()
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .collect();
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
}

fn check_scheme(url: &Url) -> Result<(), Error> {
    match url.scheme() {
        "rediss" | "valkeys" if cfg!(not(feature = "tls")) => Err(Error::config(
            "url",
            "asks for TLS, which needs the feature `tls` of babelqueue-redis",
        )),
        "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix" => Ok(()),
        other => Err(Error::config(
            "url",
            format_args!("has the scheme `{other}`; expected `redis`, `rediss` or `redis+unix`"),
        )),
    }
}

fn layout(value: &str) -> Result<Layout, Error> {
    match value {
        "sdk" => Ok(Layout::Sdk),
        "laravel" => Ok(Layout::Laravel),
        _ => Err(expected("layout", value, "`sdk` or `laravel`")),
    }
}

fn retry_after(value: &str) -> Result<Option<u64>, Error> {
    match value.to_ascii_lowercase().as_str() {
        "null" | "none" => Ok(None),
        seconds => seconds
            .parse()
            .map_err(|_| expected("retry_after", value, "whole seconds, `null` or `none`"))
            .and_then(|seconds| lease_seconds(Duration::from_secs(seconds)).map(Some)),
    }
}

fn batch_size(value: &str) -> Result<Option<NonZeroU32>, Error> {
    match value {
        "-1" => Ok(None),
        _ => value
            .parse()
            .map(Some)
            .map_err(|_| expected("migration_batch_size", value, "-1 or a number from 1")),
    }
}

fn millis(option: &'static str, value: &str) -> Result<Duration, Error> {
    let timeout = value.parse().ok().map(Duration::from_millis);
    timeout
        .and_then(|timeout| within_limits(option, timeout).ok())
        .ok_or_else(|| {
            let limits = "milliseconds, at least 1 and at most 3600000";
            expected(option, value, limits)
        })
}

fn flag_of(pairs: &[(String, String)], key: &'static str) -> Result<bool, Error> {
    let value = pairs.iter().find(|(name, _)| name == key);
    value.map_or(Ok(false), |(_, value)| flag(key, value))
}

fn flag(option: &'static str, value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(expected(
            option,
            value,
            "1, true, yes, on, 0, false, no or off",
        )),
    }
}

fn has(pairs: &[(String, String)], key: &str) -> bool {
    pairs.iter().any(|(name, _)| name == key)
}

fn expected(option: &'static str, value: &str, what: impl Into<Cow<'static, str>>) -> Error {
    Error::config(
        option,
        format_args!("is `{value}` in the URL; expected {}", what.into()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Time;

    fn refusal(url: &str) -> String {
        Config::from_url(url).expect_err(url).to_string()
    }

    #[test]
    fn our_keys_are_read_and_the_client_sees_the_rest() {
        let config = Config::from_url(
            "redis://u:p%40ss@h:7000/3?layout=laravel&retry_after=30&prefix=x%3A\
             &migration_batch_size=5&server_time=on&response_timeout_ms=250\
             &connect_timeout_ms=100&protocol=resp2",
        )
        .expect("all known");
        assert_eq!(config.layout, Layout::Laravel);
        assert_eq!(config.retry_after, Some(30));
        assert_eq!(&*config.prefix, "x:");
        assert_eq!(config.migration_batch_size, NonZeroU32::new(5));
        assert!(matches!(config.time, Time::Server));
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        assert_eq!(config.connect_timeout, Duration::from_millis(100));
        assert!(config.protocol_is_fixed);
        let settings = config.nodes[0].redis_settings();
        assert_eq!((settings.db(), settings.username()), (3, Some("u")));
        assert_eq!(settings.password(), Some("p@ss"));
    }

    #[test]
    fn the_peers_spelling_of_the_laravel_layout_is_read() {
        for query in [
            "laravel=1",
            "laravel=TRUE",
            "laravel_compat=yes",
            "layout=laravel",
        ] {
            let config = Config::from_url(&format!("redis://h?{query}")).expect(query);
            assert_eq!(config.layout, Layout::Laravel, "{query}");
        }
        let off = Config::from_url("redis://h?laravel=0&prefix=").expect("off");
        assert_eq!((off.layout, &*off.prefix), (Layout::Sdk, "queues:"));
    }

    #[test]
    fn recovery_can_be_turned_off() {
        for value in ["null", "none", "NONE"] {
            let config = Config::from_url(&format!("redis://h?retry_after={value}"));
            assert_eq!(config.expect(value).retry_after, None);
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_that_lists_the_known() {
        let error = refusal("redis://h?retry-after=90");
        for part in ["`retry-after`", "`retry_after`", "`layout`", "`protocol`"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn bad_values_name_the_option_the_value_and_what_was_expected() {
        for (url, part) in [
            ("redis://h?layout=zset", "`sdk` or `laravel`"),
            ("redis://h?laravel=maybe", "`maybe`"),
            ("redis://h?retry_after=1", "at least 2"),
            ("redis://h?retry_after=-5", "whole seconds"),
            ("redis://h?retry_after=31622401", "at most 31622400"),
            ("redis://h?retry_after=18446744073709551615", "at most"),
            ("redis://h?migration_batch_size=0", "from 1"),
            ("redis://h?response_timeout_ms=0", "at least 1"),
            ("redis://h?connect_timeout_ms=3600001", "at most 3600000"),
            (
                "redis://h?response_timeout_ms=18446744073709551615",
                "`18446744073709551615`",
            ),
            ("redis://h?prefix=a&prefix=b", "twice"),
            ("redis://h?node=a:1", "cluster=1"),
            ("redis://h?protocol=9", "9"),
            ("redis://h/notanumber", "database"),
            ("amqp://h", "`amqp`"),
            ("redis://", "host"),
            ("not a url", "does not parse"),
        ] {
            let error = refusal(url);
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_unix_socket_takes_its_settings_from_the_query() {
        let config = Config::from_url("redis+unix:///run/r.sock?db=2&user=u&pass=p&laravel=1");
        let config = config.expect("a unix socket");
        let settings = config.nodes[0].redis_settings();
        assert_eq!((settings.db(), settings.password()), (2, Some("p")));
        assert_eq!(config.address(), "redis+unix:///run/r.sock?db=2");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_needs_its_feature() {
        assert!(refusal("rediss://h").contains("feature `tls`"));
    }
}
