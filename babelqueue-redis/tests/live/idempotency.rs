//! The idempotency store.

use std::time::Duration;

use babelqueue_core::idempotency::{Claim, Store as _};
use babelqueue_redis::{Config, Layout, RedisStore};
use redis::AsyncCommands as _;
use tokio::time::sleep;

use crate::proxy::Proxy;
use crate::server::{Private, bare, handle, shared};
use crate::{Outcome, common, trials};

trials![
    an_id_is_remembered_where_the_peers_look,
    an_id_is_forgotten_with_its_time_or_on_request,
    one_of_many_claims_is_granted,
    a_claim_ends_with_its_lease_or_its_token,
    a_claim_whose_answer_was_lost_is_still_the_callers,
];

const MINUTE: Duration = Duration::from_mins(1);

async fn store() -> Result<RedisStore, crate::Fault> {
    Ok(RedisStore::new(shared(Layout::Sdk).await?))
}

async fn an_id_is_remembered_where_the_peers_look() -> Outcome {
    let store = store().await?;
    let id = common::unique("id");
    assert!(!store.seen(&id).await?);
    store.remember(&id).await?;
    assert!(store.seen(&id).await?);
    let mut bare = bare(&common::url()).await?;
    let value: String = bare.get(format!("bq:idemp:{id}")).await?;
    assert_eq!(value, "1");
    let left: i64 = bare.pttl(format!("bq:idemp:{id}")).await?;
    assert!((86_000_000..=86_400_000).contains(&left), "{left}");
    // And what a peer remembers, we see.
    let theirs = common::unique("id");
    let () = bare.set(format!("bq:idemp:{theirs}"), 1).await?;
    assert!(store.seen(&theirs).await?);
    Ok(())
}

async fn an_id_is_forgotten_with_its_time_or_on_request() -> Outcome {
    let store = store().await?.time_to_live(Duration::from_millis(150));
    let id = common::unique("id");
    store.remember(&id).await?;
    store.forget(&id).await?;
    assert!(!store.seen(&id).await?);
    store.remember(&id).await?;
    sleep(Duration::from_millis(250)).await;
    assert!(!store.seen(&id).await?);
    Ok(())
}

async fn one_of_many_claims_is_granted() -> Outcome {
    let store = store().await?;
    let id = common::unique("id");
    let claims = (0..20).map(|_| store.claim(&id, MINUTE));
    let claims = futures_util::future::try_join_all(claims).await?;
    let granted = claims
        .iter()
        .filter(|claim| matches!(claim, Claim::Granted(_)))
        .count();
    let held = claims
        .iter()
        .filter(|claim| matches!(claim, Claim::Held))
        .count();
    assert_eq!((granted, held), (1, 19));
    // A claim is not yet a memory.
    assert!(!store.seen(&id).await?);
    store.remember(&id).await?;
    assert_eq!(store.claim(&id, MINUTE).await?, Claim::Seen);
    store.forget(&id).await?;
    assert!(matches!(store.claim(&id, MINUTE).await?, Claim::Granted(_)));
    Ok(())
}

async fn a_claim_ends_with_its_lease_or_its_token() -> Outcome {
    let store = store().await?;
    let id = common::unique("id");
    let Claim::Granted(first) = store.claim(&id, Duration::from_millis(150)).await? else {
        return Err("not granted".into());
    };
    sleep(Duration::from_millis(250)).await;
    let Claim::Granted(second) = store.claim(&id, MINUTE).await? else {
        return Err("its lease did not end it".into());
    };
    // The first is late: the claim is somebody else's now.
    store.release(&id, first).await?;
    assert_eq!(store.claim(&id, MINUTE).await?, Claim::Held);
    store.release(&id, second).await?;
    assert!(matches!(store.claim(&id, MINUTE).await?, Claim::Granted(_)));
    Ok(())
}

async fn a_claim_whose_answer_was_lost_is_still_the_callers() -> Outcome {
    let server = Private::start(&[]).await?;
    let proxy = Proxy::to(server.address()).await?;
    let store = RedisStore::new(handle(Config::from_url(&proxy.url(""))?).await?);
    // So that the server knows the script.
    store.claim("warm", MINUTE).await?;
    proxy.swallow_one_answer();
    assert!(matches!(
        store.claim("id", MINUTE).await?,
        Claim::Granted(_)
    ));
    Ok(())
}
