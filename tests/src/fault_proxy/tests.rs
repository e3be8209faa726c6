//! Tests of the proxy, before a server that sends back what it gets.

use std::io::{Read, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};

use log_core::protocol::frame::{RequestHead, encode_request};

use super::*;

/// A server that sends back what it gets, each byte plus `add`.
fn echo(add: u8) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut chunk) {
                    let back: Vec<u8> = chunk[..len].iter().map(|b| b.wrapping_add(add)).collect();
                    if stream.write_all(&back).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(bytes)?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back)?;
    Ok(back)
}

/// Whether nothing comes for a while.
fn is_silent(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let error = (&mut &*stream).read(&mut [0]).err();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    error.is_some_and(|e| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

/// All that comes until the connection is closed.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn without_faults_all_passes_and_the_target_can_change() {
    let proxy = FaultProxy::start(echo(0)).unwrap();
    let mut first = connect(&proxy);
    let large: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let mut writer = first.try_clone().unwrap();
    let (sent, expected) = (large.clone(), large.clone());
    std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut back = vec![0; large.len()];
    first.read_exact(&mut back).unwrap();
    assert!(back == expected);
    proxy.aim(echo(1));
    let mut second = connect(&proxy);
    assert_eq!(ask(&mut second, b"abc").unwrap(), b"bcd");
    assert_eq!(ask(&mut first, b"abc").unwrap(), b"abc", "it stays where it is");
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    assert_eq!(proxy.passed(Way::Requests), 200_006);
}

#[test]
fn a_cut_comes_after_just_so_many_bytes() {
    let proxy = FaultProxy::start(echo(0)).unwrap();
    proxy.script(&[Faults::replies(Fault::Cut { after: 5 })]);
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, b"abc").unwrap(), b"abc");
    stream.write_all(b"defg").unwrap();
    assert_eq!(rest(&mut stream), b"de");
    assert_eq!(ask(&mut connect(&proxy), b"abc").unwrap(), b"abc", "the script is over");
    assert_eq!(proxy.open(), 1);
}

#[test]
fn a_black_hole_takes_all_and_gives_nothing() {
    let proxy = FaultProxy::start(echo(0)).unwrap();
    proxy.script(&[Faults::requests(Fault::BlackHole { after: 2 })]);
    let mut stream = connect(&proxy);
    stream.write_all(b"abcdef").unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).unwrap();
    assert_eq!((&two, is_silent(&stream)), (b"ab", true));
    stream.write_all(&vec![0; 3_000_000]).expect("it is swallowed");
    assert_eq!((proxy.passed(Way::Requests), proxy.open()), (2, 1));
}

#[test]
fn a_pause_keeps_one_way_back_until_it_ends() {
    let proxy = FaultProxy::start(echo(0)).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, b"x").unwrap(), b"x");
    proxy.set(Faults::replies(Fault::Pause));
    // A read of before the pause may still wait, and end with what comes first.
    std::thread::yield_now();
    proxy.shared.wait(4 * TICK);
    stream.write_all(b"abc").unwrap();
    assert!(is_silent(&stream));
    proxy.set(Faults::NONE);
    let mut back = [0; 3];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"abc");
}

#[test]
fn a_frame_comes_twice_however_it_is_cut() {
    let frame =
        |n: u8| encode_request(RequestHead { kind: 1, version: 1, correlation: n.into() }, &[n; 5]);
    let sent = [frame(0), frame(1), frame(2)].concat();
    for step in [1, 7, 16, 17, 18, 40, 51] {
        let proxy = FaultProxy::start(echo(0)).unwrap();
        proxy.set(Faults::requests(Fault::Duplicate { frame: 1 }));
        let mut stream = connect(&proxy);
        for part in sent.chunks(step) {
            stream.write_all(part).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let twice = [frame(0), frame(1), frame(1), frame(2)].concat();
        assert_eq!(rest(&mut stream), twice, "{step}");
    }
}

#[test]
fn what_is_delayed_or_throttled_comes_whole() {
    let proxy = FaultProxy::start(echo(0)).unwrap();
    for fault in
        [Fault::Delay(Duration::from_millis(60)), Fault::Throttle { bytes_per_second: 10_000 }]
    {
        proxy.set(Faults::requests(fault));
        let mut stream = connect(&proxy);
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(ask(&mut stream, &[7; 600]).unwrap()));
        let early = receiver.recv_timeout(Duration::from_millis(40));
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "{fault:?}");
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(vec![7; 600]), "{fault:?}");
    }
}

#[test]
fn connections_can_be_dropped_and_refused() {
    let proxy = FaultProxy::start(echo(0)).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, b"abc").unwrap(), b"abc");
    proxy.drop_all();
    assert_eq!((rest(&mut stream).len(), proxy.open()), (0, 0));
    proxy.refuse(true);
    assert!(ask(&mut connect(&proxy), b"abc").is_err());
    proxy.refuse(false);
    assert_eq!(ask(&mut connect(&proxy), b"abc").unwrap(), b"abc");
    let mut last = connect(&proxy);
    drop(proxy);
    assert!(ask(&mut last, b"abc").is_err());
}

#[test]
fn a_seed_gives_the_same_faults_and_all_kinds_of_them() {
    let of = |seed| (0..200).map(move |n| Faults::of_seed(seed, n)).collect::<Vec<_>>();
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    let has = |wanted: fn(&Fault) -> bool| {
        of(7).iter().any(|faults| wanted(&faults.requests))
            && of(7).iter().any(|f| wanted(&f.replies))
    };
    assert!(has(|f| matches!(f, Fault::None)));
    assert!(has(|f| matches!(f, Fault::Delay(_))));
    assert!(has(|f| matches!(f, Fault::Throttle { .. })));
    assert!(has(|f| matches!(f, Fault::Cut { .. })));
    assert!(has(|f| matches!(f, Fault::BlackHole { .. })));
    assert!(has(|f| matches!(f, Fault::Duplicate { .. })));
}
