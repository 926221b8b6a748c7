//! What becomes of messages: headers, copies, delays, giving back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use babelqueue_core::transport::{Outgoing, Settled, Settlement, Transport as _};
use babelqueue_core::{Error, Headers};
use babelqueue_redis::Layout;
use bytes::Bytes;
use futures_util::FutureExt as _;
use redis::AsyncCommands as _;

use crate::common::{self, unique};
use crate::server::{
    PATIENCE, bare, publish, receive, shared, stays_empty, subscribe, texts, within,
};
use crate::{Outcome, trials};

trials![
    headers_stay_with_a_message_through_retry_and_dead_letter,
    headers_are_left_out_in_the_laravel_layout,
    bytes_that_are_no_text_come_back_as_they_went,
    a_batch_keeps_its_order_and_tells_each_result,
    a_dropped_receive_loses_nothing,
    closing_gives_back_what_was_not_given_out,
    closing_waits_for_what_is_out,
    a_retry_in_the_sdk_layout_comes_at_once,
    a_delay_holds_a_message_back_in_the_laravel_layout,
    a_retry_without_delay_comes_at_once_in_the_laravel_layout,
    options_that_redis_lacks_are_refused_and_the_rest_is_sent,
    recovery_off_gives_an_abandoned_message_back_at_once,
];

fn headers() -> Headers {
    [("traceparent", "00-ab"), ("note", "é \"x\"")]
        .into_iter()
        .collect()
}

fn with_headers(queue: &str) -> Outgoing {
    let mut message = Outgoing::new(queue, r#"{"job":"urn:a","attempts":0}"#);
    message.headers = headers();
    message
}

async fn headers_stay_with_a_message_through_retry_and_dead_letter() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("headers");
    let dead = format!("{queue}.dlq");
    for result in redis.publish(vec![with_headers(&queue)]).await {
        result?;
    }
    let mut subscription = subscribe(&redis, &queue).await?;
    let mut dead_letters = subscribe(&redis, &dead).await?;

    let first = receive(&mut subscription, 1).await?.remove(0);
    assert_eq!(first.headers, headers());
    let retry = Settlement::Retry {
        body: Bytes::from_static(br#"{"job":"urn:a","attempts":1}"#),
        attempts: 1,
        delay: Duration::ZERO,
    };
    assert_done(&subscription.settler.settle(vec![(first, retry)]).await);

    let second = receive(&mut subscription, 1).await?.remove(0);
    assert_eq!(second.headers, headers());
    assert_eq!(&second.body[..], br#"{"job":"urn:a","attempts":1}"#);
    let letter = Settlement::DeadLetter {
        queue: dead.into(),
        record: Bytes::from_static(b"{\"record\":1}"),
        verbatim: false,
        attempts: 2,
    };
    assert_done(&subscription.settler.settle(vec![(second, letter)]).await);

    let third = receive(&mut dead_letters, 1).await?.remove(0);
    assert_eq!(third.headers, headers());
    assert_eq!(&third.body[..], b"{\"record\":1}");
    assert_done(
        &dead_letters
            .settler
            .settle(vec![(third, Settlement::Ack)])
            .await,
    );
    assert_eq!(leftovers(&queue).await?, Vec::<String>::new());
    Ok(())
}

async fn headers_are_left_out_in_the_laravel_layout() -> Outcome {
    let redis = shared(Layout::Laravel).await?;
    let queue = unique("no-headers");
    for result in redis.publish(vec![with_headers(&queue)]).await {
        result?;
    }
    let mut subscription = subscribe(&redis, &queue).await?;
    let delivery = receive(&mut subscription, 1).await?.remove(0);
    assert!(delivery.headers.is_empty());
    assert_eq!(&delivery.body[..], br#"{"job":"urn:a","attempts":0}"#);
    assert_done(
        &subscription
            .settler
            .settle(vec![(delivery, Settlement::Ack)])
            .await,
    );
    Ok(())
}

async fn bytes_that_are_no_text_come_back_as_they_went() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        let queue = unique("bytes");
        let body = Bytes::from_static(b"\x00\r\n\xff\xfe{\"broken");
        for result in redis
            .publish(vec![Outgoing::new(&*queue, body.clone())])
            .await
        {
            result?;
        }
        let mut subscription = subscribe(&redis, &queue).await?;
        for _ in 0..2 {
            let delivery = receive(&mut subscription, 1).await?.remove(0);
            assert_eq!(delivery.body, body, "{layout:?}");
            let settled = subscription
                .settler
                .settle(vec![(delivery, Settlement::release())])
                .await;
            assert_done(&settled);
        }
    }
    Ok(())
}

async fn a_batch_keeps_its_order_and_tells_each_result() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        let (even, odd) = (unique("even"), unique("odd"));
        let batch: Vec<_> = (0..2_500)
            .map(|n| {
                let queue = if n % 2 == 0 { &even } else { &odd };
                let mut message = Outgoing::new(&**queue, n.to_string());
                if n % 500 == 0 {
                    message.options.priority = Some(1);
                }
                message
            })
            .collect();
        let results = redis.publish(batch).await;
        let refused: Vec<_> = (0..results.len())
            .filter(|n| results[*n].is_err())
            .collect();
        assert_eq!(refused, [0, 500, 1000, 1500, 2000]);

        for (queue, parity) in [(&even, 0), (&odd, 1)] {
            let mut subscription = subscribe(&redis, queue).await?;
            let expected: Vec<_> = (0..2_500)
                .filter(|n| n % 2 == parity && n % 500 != 0)
                .map(|n| n.to_string())
                .collect();
            let deliveries = receive(&mut subscription, expected.len()).await?;
            assert_eq!(texts(&deliveries), expected, "{layout:?}");
            let batch = deliveries
                .into_iter()
                .map(|d| (d, Settlement::Ack))
                .collect();
            assert_done(&subscription.settler.settle(batch).await);
        }
    }
    Ok(())
}

async fn a_dropped_receive_loses_nothing() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        let queue = unique("dropped");
        let mut subscription = subscribe(&redis, &queue).await?;
        let mut seen = Vec::new();
        for n in 0..40_u64 {
            publish(&redis, &queue, &[&n.to_string()]).await?;
            // Dropped at every stage: before the call, in flight, answered, while it blocks.
            let patience = Duration::from_micros(n * 25);
            let taken = tokio::time::timeout(patience, subscription.receiver.receive(2)).await;
            if let Ok(taken) = taken {
                seen.extend(taken?);
            }
        }
        while seen.len() < 40 {
            seen.extend(receive(&mut subscription, 1).await?);
        }
        let expected: Vec<_> = (0..40).map(|n| n.to_string()).collect();
        assert_eq!(texts(&seen), expected, "{layout:?}");
        let batch = seen.into_iter().map(|d| (d, Settlement::Ack)).collect();
        assert_done(&subscription.settler.settle(batch).await);
    }
    Ok(())
}

async fn closing_gives_back_what_was_not_given_out() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        // The answer is on its way, or there and not given out, when the receive is dropped. On a
        // busy machine it can come within the one poll, and is given out: then it proves nothing.
        let queue = loop {
            let queue = unique("closed");
            publish(&redis, &queue, &["a", "b", "c"]).await?;
            let mut subscription = subscribe(&redis, &queue).await?;
            let polled_once = subscription.receiver.receive(3).now_or_never();
            if polled_once.is_some() {
                continue;
            }
            subscription.receiver.close(PATIENCE).await?;
            break queue;
        };

        let mut other = subscribe(&redis, &queue).await?;
        let mut deliveries = receive(&mut other, 3).await?;
        deliveries.sort_by(|a, b| a.body.cmp(&b.body));
        assert_eq!(texts(&deliveries), ["a", "b", "c"], "{layout:?}");
    }
    Ok(())
}

async fn closing_waits_for_what_is_out() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("out");
    publish(&redis, &queue, &["a"]).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let delivery = receive(&mut subscription, 1).await?.remove(0);

    let settler = Arc::clone(&subscription.settler);
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);
    let settling = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        begins.store(true, Ordering::SeqCst);
        settler.settle(vec![(delivery, Settlement::Ack)]).await
    });
    let started = tokio::time::Instant::now();
    subscription.receiver.close(2 * PATIENCE).await?;
    assert!(begun.load(Ordering::SeqCst), "it did not wait");
    assert!(started.elapsed() < PATIENCE, "it waited to the end");
    assert_done(&settling.await.expect("no panic"));
    Ok(())
}

async fn a_retry_in_the_sdk_layout_comes_at_once() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("retry");
    publish(&redis, &queue, &["a", "b"]).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let first = receive(&mut subscription, 1).await?.remove(0);
    let retry = Settlement::Retry {
        body: Bytes::from_static(b"a2"),
        attempts: 1,
        // The layout has no delay (contract §11A.3); `Rules::backoff` says so to the worker.
        delay: Duration::from_mins(1),
    };
    assert_done(&subscription.settler.settle(vec![(first, retry)]).await);
    assert_eq!(texts(&receive(&mut subscription, 2).await?), ["b", "a2"]);
    Ok(())
}

async fn a_delay_holds_a_message_back_in_the_laravel_layout() -> Outcome {
    let redis = shared(Layout::Laravel).await?;
    let queue = unique("delay");
    let mut subscription = subscribe(&redis, &queue).await?;
    let mut message = Outgoing::new(&*queue, "later");
    message.options.delay = Some(Duration::from_millis(1_200));
    let started = tokio::time::Instant::now();
    for result in redis.publish(vec![message]).await {
        result?;
    }
    assert_eq!(texts(&receive(&mut subscription, 1).await?), ["later"]);
    let waited = started.elapsed();
    // floor(now) + 2 s: between 1 s and 2 s away, and then as long as it takes to look.
    assert!(waited >= Duration::from_secs(1), "{waited:?}");

    let sdk = shared(Layout::Sdk).await?;
    let mut message = Outgoing::new(&*queue, "never");
    message.options.delay = Some(Duration::from_secs(1));
    let refused = sdk.publish(vec![message]).await.remove(0);
    assert!(
        matches!(
            refused,
            Err(Error::Unsupported {
                feature: "delay",
                ..
            })
        ),
        "{refused:?}"
    );
    Ok(())
}

async fn a_retry_without_delay_comes_at_once_in_the_laravel_layout() -> Outcome {
    // Without a nudge it would be found after the slice of a second in which the wait looks again.
    within(Duration::from_millis(500), || async {
        let redis = shared(Layout::Laravel).await?;
        let queue = unique("again");
        publish(&redis, &queue, &["a"]).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let first = receive(&mut subscription, 1).await?.remove(0);
        let settler = Arc::clone(&subscription.settler);
        // Waits already when the retry is written, and a retry carries no wake-up.
        let again = tokio::spawn(async move {
            let deliveries = receive(&mut subscription, 1).await;
            deliveries
                .map(|deliveries| texts(&deliveries))
                .map_err(|_| "no delivery")
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let started = tokio::time::Instant::now();
        let retry = Settlement::Retry {
            body: Bytes::from_static(b"a2"),
            attempts: 1,
            delay: Duration::ZERO,
        };
        assert_done(&settler.settle(vec![(first, retry)]).await);
        assert_eq!(again.await.expect("no panic")?, ["a2"]);
        Ok(started.elapsed())
    })
    .await
}

async fn options_that_redis_lacks_are_refused_and_the_rest_is_sent() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("options");
    let plain = || Outgoing::new(&*queue, "plain");
    let mut batch = vec![plain()];
    for n in 0..6 {
        let mut message = plain();
        let options = &mut message.options;
        match n {
            0 => options.key = Some(Bytes::new()),
            1 => options.partition = Some(1),
            2 => options.group = Some("g".to_owned()),
            3 => options.deduplication_id = Some("d".to_owned()),
            4 => options.priority = Some(1),
            _ => options.time_to_live = Some(Duration::from_secs(1)),
        }
        batch.push(message);
    }
    batch.push(plain());
    let results = redis.publish(batch).await;
    assert!(results[0].is_ok() && results[7].is_ok());
    for result in &results[1..7] {
        assert!(
            matches!(result, Err(Error::Unsupported { .. })),
            "{result:?}"
        );
    }
    let length: u64 = bare(&common::url()).await?.llen(&queue).await?;
    assert_eq!(length, 2);
    Ok(())
}

async fn recovery_off_gives_an_abandoned_message_back_at_once() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let config = common::config()?.with_layout(layout).retry_after(None)?;
        let redis = crate::server::handle(config).await?;
        let queue = unique("abandoned");
        publish(&redis, &queue, &["a"]).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let delivery = receive(&mut subscription, 1).await?.remove(0);
        assert_eq!(delivery.lease_end(), None);
        assert!(stays_empty(&mut subscription, Duration::from_millis(200)).await);
        let settled = subscription
            .settler
            .settle(vec![(delivery, Settlement::Abandon)])
            .await;
        assert_done(&settled);
        assert_eq!(texts(&receive(&mut subscription, 1).await?), ["a"]);
    }
    Ok(())
}

/// The keys of the queue and its dead-letter queue that are still there.
async fn leftovers(queue: &str) -> Result<Vec<String>, crate::Fault> {
    Ok(bare(&common::url())
        .await?
        .keys(format!("*{queue}*"))
        .await?)
}

fn assert_done(answers: &[Result<Settled, Error>]) {
    for answer in answers {
        assert!(matches!(answer, Ok(Settled::Done)), "{answer:?}");
    }
}
