//! `idempotency`: an effect for each `meta.id`, once (contract §17A).

use std::future::Future;
use std::sync::Arc;

use babelqueue_core::Error;
use babelqueue_core::envelope::Envelope;
use babelqueue_core::idempotency::{Effect, Idempotent, MemoryStore, Store};

use crate::{Case, Json, Met, Unmet, Unreadable, holds, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    match case.group() {
        None if case.id == "dedup_key" => blocking(dedup_key(case)),
        Some("sequences") => blocking(sequence(case)),
        _ => Err(unknown("idempotency case", &case.id).into()),
    }
}

/// The key is `meta.id` verbatim, and not the trace id.
async fn dedup_key(case: &Case) -> Met {
    let envelope = Envelope::decode(case.fixture("envelope_file")?)?.envelope;
    let field = case.text("key_field")?;
    if field != "meta.id" {
        return Err(unknown("key field", field).into());
    }
    let id = envelope.id();
    let store = Arc::new(MemoryStore::new());
    let once = Idempotent::new(store.clone());
    for expected in [Effect::Ran(()), Effect::Skipped] {
        let effect = once
            .run(id.as_deref(), || async { Ok::<_, Error>(()) })
            .await?;
        same("effect", &effect, &expected)?;
    }
    let key = case.text("expected_key")?;
    holds(
        store.seen(key).await?,
        format_args!("the store does not know {key}"),
    )?;
    let trace_id = envelope.trace_id().unwrap_or_default();
    holds(!store.seen(&trace_id).await?, "the trace id is a key too")
}

/// One handler over one store through the deliveries in order.
async fn sequence(case: &Case) -> Met {
    let store = Arc::new(MemoryStore::new());
    let once = Idempotent::new(store.clone());
    let mut effects = 0;
    for (i, delivery) in case.items("deliveries")?.iter().enumerate() {
        let id = delivery.get("meta_id").and_then(Json::as_str);
        let word = |name: &str| delivery.get(name).and_then(Json::as_str);
        if delivery.get("forget_before").and_then(Json::as_bool) == Some(true) {
            store.forget(id.unwrap_or_default()).await?;
        }
        let outcome = word("outcome").unwrap_or("ok");
        let mut ran = false;
        let result = once
            .run(id, || {
                ran = true;
                let result = match outcome {
                    "ok" => Ok(()),
                    // The kind of error does not matter, only that there is one.
                    _ => Err(Error::transient("handle", outcome)),
                };
                async { result }
            })
            .await;
        let found = if ran { "run" } else { "skip" };
        same(
            format_args!("effect of delivery {i}"),
            &Some(found),
            &word("expect_effect"),
        )?;
        let failed = result.is_err();
        match outcome {
            "ok" => holds(!failed, format_args!("delivery {i} failed"))?,
            "throw" => holds(
                failed == ran,
                format_args!("the handler's error on delivery {i} is lost"),
            )?,
            word => return Err(unknown("outcome", word).into()),
        }
        effects += i64::from(ran);
    }
    // Every run of the handler counts, a failed one too (contract §18.11).
    same("effects", &effects, &case.integer("expected_effects")?)
}

fn blocking(met: impl Future<Output = Met>) -> Met {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|e| Unmet::from(Unreadable(format!("no runtime: {e}"))))?
        .block_on(met)
}
