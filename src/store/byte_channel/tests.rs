//! Chunks arrive in order, and an incomplete body ends with an error.

use std::task::Waker;
use std::thread;

use tokio::runtime::Builder;

use super::*;

const LONG: ChannelTimeouts =
    ChannelTimeouts { idle: Duration::from_secs(600), total: Duration::from_secs(600) };

fn fetch(fetcher: &mut Consumer) -> Poll<Option<Result<Bytes, String>>> {
    let polled = fetcher.poll(&mut Context::from_waker(Waker::noop()));
    polled.map_err(|error| error.to_string())
}

fn piece(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[number])
}

/// Blocks this thread.
fn fetch_all(mut fetcher: Consumer) -> (Vec<u8>, Option<String>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all = Vec::new();
        loop {
            match poll_fn(|context| fetcher.poll(context)).await {
                Some(Ok(piece)) => all.extend(piece),
                Some(Err(error)) => return (all, Some(error.to_string())),
                None => return (all, None),
            }
        }
    })
}

#[test]
fn channel_delivers_in_order_across_threads_and_tasks() {
    let (maker, fetcher) = ByteChannel::new_pair(LONG);
    let thread = thread::spawn(move || {
        for number in 0..200 {
            maker.blocking_send(piece(number)).unwrap();
        }
        maker.finish(Ok(piece(200)));
    });
    assert_eq!(fetch_all(fetcher), ((0..=200).collect(), None));
    thread.join().unwrap();

    let (maker, fetcher) = ByteChannel::new_pair(LONG);
    let thread = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for number in 0..200 {
                maker.send(piece(number)).await.unwrap();
            }
            maker.finish(Ok(Bytes::new()));
        });
    });
    assert_eq!(fetch_all(fetcher), ((0..200).collect(), None));
    thread.join().unwrap();
}

#[test]
fn channel_first_chunk_tells_whether_it_is_the_whole_body() {
    let first = |fetcher: &mut Consumer| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(fetcher.first_chunk()).map_err(|error| error.to_string())
    };
    let (maker, mut fetcher) = ByteChannel::new_pair(LONG);
    maker.finish(Ok(piece(1)));
    assert_eq!(first(&mut fetcher), Ok((piece(1), true)));
    let (maker, mut fetcher) = ByteChannel::new_pair(LONG);
    maker.finish(Ok(Bytes::new()));
    assert_eq!(first(&mut fetcher), Ok((Bytes::new(), true)));
    // Even when the end is known by then, so that the same data always gives the same response.
    let (maker, mut fetcher) = ByteChannel::new_pair(LONG);
    maker.blocking_send(piece(1)).unwrap();
    maker.finish(Ok(Bytes::new()));
    assert_eq!(first(&mut fetcher), Ok((piece(1), false)));
    assert_eq!(fetch(&mut fetcher), Poll::Ready(None));
    let (maker, mut fetcher) = ByteChannel::new_pair(LONG);
    maker.finish(Err(StoreError::TimedOut));
    assert_eq!(first(&mut fetcher), Err("the time limit was exceeded".to_owned()));
}

#[test]
fn cancel_discards_buffered_chunks_and_is_never_a_clean_end() {
    let (maker, mut fetcher) = ByteChannel::new_pair(LONG);
    maker.blocking_send(piece(1)).unwrap();
    maker.blocking_send(piece(2)).unwrap();
    assert_eq!(fetch(&mut fetcher), Poll::Ready(Some(Ok(piece(1)))));
    maker.channel().cancel(cancelled_error("because"));
    assert_eq!(maker.blocking_send(piece(3)), Err(Cancelled));
    assert_eq!(fetch(&mut fetcher), Poll::Ready(Some(Err("cancelled: because".to_owned()))));
    maker.finish(Ok(Bytes::new()));
    for _ in 0..2 {
        assert!(matches!(fetch(&mut fetcher), Poll::Ready(Some(Err(_)))));
    }
}

#[test]
fn dropped_producer_is_an_error_and_dropped_consumer_cancels() {
    let (maker, mut fetcher) = ByteChannel::new_pair(LONG);
    maker.blocking_send(piece(1)).unwrap();
    drop(maker);
    assert!(matches!(fetch(&mut fetcher), Poll::Ready(Some(Err(_)))));

    let (maker, fetcher) = ByteChannel::new_pair(LONG);
    for number in 0..2 {
        maker.blocking_send(piece(number)).unwrap();
    }
    let waiting = thread::spawn(move || maker.blocking_send(piece(2)));
    drop(fetcher);
    assert_eq!(waiting.join().unwrap(), Err(Cancelled));
}

#[test]
fn channel_cancels_after_idle_or_total_timeout() {
    let idle = Duration::from_millis(20);
    let (maker, mut fetcher) = ByteChannel::new_pair(ChannelTimeouts { idle, ..LONG });
    for number in 0..2 {
        maker.blocking_send(piece(number)).unwrap();
    }
    assert_eq!(maker.channel().stalled_for(clock::now()), Duration::ZERO);
    assert_eq!(maker.blocking_send(piece(2)), Err(Cancelled));
    assert!(
        matches!(fetch(&mut fetcher), Poll::Ready(Some(Err(error))) if error.contains("read nothing"))
    );

    let (maker, mut fetcher) = ByteChannel::new_pair(ChannelTimeouts { idle, ..LONG });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for number in 0..2 {
            maker.send(piece(number)).await.unwrap();
        }
        assert_eq!(maker.send(piece(2)).await, Err(Cancelled));
    });
    assert!(
        matches!(fetch(&mut fetcher), Poll::Ready(Some(Err(error))) if error.contains("read nothing"))
    );

    let (maker, mut fetcher) =
        ByteChannel::new_pair(ChannelTimeouts { total: Duration::ZERO, ..LONG });
    assert_eq!(maker.blocking_send(piece(1)), Err(Cancelled));
    assert!(
        matches!(fetch(&mut fetcher), Poll::Ready(Some(Err(error))) if error.contains("took longer"))
    );
}
