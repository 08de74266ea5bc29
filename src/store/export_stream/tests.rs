//! Chunks arrive in order, and an incomplete body ends with an error.

use std::task::Waker;
use std::thread;

use tokio::runtime::Builder;

use super::*;

const LONG: ExportTimeouts =
    ExportTimeouts { idle: Duration::from_secs(600), total: Duration::from_secs(600) };

fn begin(timeouts: ExportTimeouts) -> (ExportSink, ExportStream) {
    let text = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\n";
    let model = crate::model::read("exports.toml", text).unwrap();
    let exports = Exports::new(&model.server.limits, &Metrics::new(&model));
    let exports = Arc::into_inner(exports).unwrap();
    Arc::new(Exports { timeouts, ..exports }).begin().unwrap()
}

/// As the thread of an export on SQLite does.
fn send(sink: &ExportSink, number: u8) -> Result<(), Cancelled> {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(sink.send(chunk(number)))
}

fn poll(stream: &mut ExportStream) -> Poll<Option<Result<Bytes, String>>> {
    let polled = stream.poll(&mut Context::from_waker(Waker::noop()));
    polled.map_err(|error| error.to_string())
}

fn chunk(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[number])
}

/// Blocks this thread.
fn receive_all(mut stream: ExportStream) -> (Vec<u8>, Option<String>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all = Vec::new();
        loop {
            match poll_fn(|context| stream.poll(context)).await {
                Some(Ok(chunk)) => all.extend(chunk),
                Some(Err(error)) => return (all, Some(error.to_string())),
                None => return (all, None),
            }
        }
    })
}

#[test]
fn export_stream_delivers_in_order_across_threads_and_tasks() {
    let (sink, stream) = begin(LONG);
    let thread = thread::spawn(move || {
        for number in 0..200 {
            send(&sink, number).unwrap();
        }
        sink.finish(Ok(chunk(200)));
    });
    assert_eq!(receive_all(stream), ((0..=200).collect(), None));
    thread.join().unwrap();

    let (sink, stream) = begin(LONG);
    let thread = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for number in 0..200 {
                sink.send(chunk(number)).await.unwrap();
            }
            sink.finish(Ok(Bytes::new()));
        });
    });
    assert_eq!(receive_all(stream), ((0..200).collect(), None));
    thread.join().unwrap();
}

#[test]
fn export_stream_first_chunk_tells_whether_it_is_the_whole_body() {
    let first = |stream: ExportStream| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(stream.into_body()).map_err(|error| error.to_string())
    };
    let (sink, stream) = begin(LONG);
    sink.finish(Ok(chunk(1)));
    assert!(matches!(first(stream), Ok(ExportBody::Complete(whole)) if whole == chunk(1)));
    let (sink, stream) = begin(LONG);
    sink.finish(Ok(Bytes::new()));
    assert!(matches!(first(stream), Ok(ExportBody::Complete(whole)) if whole.is_empty()));
    // Even when the end is known by then, so that the same data always gives the same response.
    let (sink, stream) = begin(LONG);
    send(&sink, 1).unwrap();
    sink.finish(Ok(Bytes::new()));
    let Ok(ExportBody::Streaming(piece, mut stream)) = first(stream) else { panic!() };
    assert_eq!((piece, poll(&mut stream)), (chunk(1), Poll::Ready(None)));
    let (sink, stream) = begin(LONG);
    sink.finish(Err(StoreError::TimedOut));
    assert_eq!(first(stream).unwrap_err(), "the time limit was exceeded");
}

#[test]
fn cancel_discards_buffered_chunks_and_is_never_a_clean_end() {
    let (sink, mut stream) = begin(LONG);
    send(&sink, 1).unwrap();
    send(&sink, 2).unwrap();
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok(chunk(1)))));
    sink.control().cancel("because");
    assert_eq!(send(&sink, 3), Err(Cancelled));
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Err("cancelled: because".to_owned()))));
    sink.finish(Ok(Bytes::new()));
    for _ in 0..2 {
        assert!(matches!(poll(&mut stream), Poll::Ready(Some(Err(_)))));
    }
}

/// Of a producer whose thread is busy.
#[test]
fn cancel_wakes_a_waiting_consumer() {
    let (sink, stream) = begin(LONG);
    let control = Arc::clone(sink.control());
    let receiving = thread::spawn(move || receive_all(stream));
    control.cancel("because");
    assert_eq!(receiving.join().unwrap().1.as_deref(), Some("cancelled: because"));
    drop(sink);
}

#[test]
fn dropped_sink_is_an_error_and_dropped_stream_cancels() {
    let (sink, mut stream) = begin(LONG);
    send(&sink, 1).unwrap();
    drop(sink);
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok(chunk(1)))));
    for _ in 0..2 {
        assert!(matches!(poll(&mut stream), Poll::Ready(Some(Err(_)))));
    }

    let (sink, stream) = begin(LONG);
    for number in 0..2 {
        send(&sink, number).unwrap();
    }
    let waiting = thread::spawn(move || send(&sink, 2));
    drop(stream);
    assert_eq!(waiting.join().unwrap(), Err(Cancelled));
}

#[test]
fn export_stream_is_cancelled_after_idle_or_total_timeout() {
    let idle = Duration::from_millis(20);
    let (sink, mut stream) = begin(ExportTimeouts { idle, ..LONG });
    for number in 0..2 {
        send(&sink, number).unwrap();
    }
    assert_eq!(sink.control().stalled_for(clock::now()), Duration::ZERO);
    assert_eq!(send(&sink, 2), Err(Cancelled));
    assert!(
        matches!(poll(&mut stream), Poll::Ready(Some(Err(error))) if error.contains("read nothing"))
    );

    let (sink, mut stream) = begin(ExportTimeouts { total: Duration::ZERO, ..LONG });
    assert_eq!(send(&sink, 1), Err(Cancelled));
    assert!(
        matches!(poll(&mut stream), Poll::Ready(Some(Err(error))) if error.contains("took longer"))
    );
}

#[test]
fn export_over_the_limit_is_busy_until_one_has_ended() {
    let (first, _stream) = begin(LONG);
    let exports = Arc::clone(&first.slot.exports);
    let others: Vec<_> = std::iter::from_fn(|| exports.begin().ok()).collect();
    assert_eq!(others.len() + 1, exports.exports_max);
    assert!(matches!(exports.begin(), Err(StoreError::Busy)));
    first.finish(Ok(Bytes::new()));
    assert!(exports.begin().is_ok());
    // Streams that are dropped or shut down free their slots when their producers end.
    assert!(exports.has_any());
    drop(others);
    assert!(!exports.has_any());
    exports.close();
}
