// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports, their bytes and their messages.

use proptest::prelude::*;
use turnstile_console::control::{Journal, Name, PORTS, Port, Ports, State, WORDS};
use turnstile_console::data::{Output, Sink, input};
use turnstile_console::{BUFFERS, CONTROL, queues};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_virtio::config::ConsoleControl;
use turnstile_virtio::device::Queue;
use turnstile_virtio::ring::Options;

const OPTIONS: Options = Options { indirect: true, event_idx: true };
const CONSOLE: Port = Port { is_console: true, name: Name::new(b""), size: (80, 25), is_open: true };
const STREAM: Port =
    Port { is_console: false, name: Name::new(b"org.example.0"), size: (0, 0), is_open: false };

fn ports() -> Ports {
    let mut ports = [None; PORTS];
    (ports[0], ports[3]) = (Some(CONSOLE), Some(STREAM));
    Ports::new(ports, State::default())
}

/// Both control queues.
struct Control {
    ram: Ram,
    to: Guest,
    from: Guest,
    queues: (Queue, Queue),
}

impl Control {
    fn new() -> Self {
        let ram = Ram::new(0x10_0000, Fuse::default());
        let [mut to, from] = [0, 0x8_0000].map(|at| Guest::new(&ram, Ram::BASE + at, 16, OPTIONS, 0x1000));
        let queues =
            (Queue::new(to.ring.layout, OPTIONS, BUFFERS), Queue::new(from.ring.layout, OPTIONS, BUFFERS));
        while to.ask(&ram, &Request { writable: vec![32], indirect: true, ..Request::default() }).is_some() {}
        Self { ram, to, from, queues }
    }

    fn say(&mut self, ports: &mut Ports, message: (u32, u16, u16)) -> Vec<(u32, u16, u16, Vec<u8>)> {
        let (port, event, value) = message;
        let bytes = ConsoleControl { port, event, value }.to_bytes().to_vec();
        self.raw(ports, bytes)
    }

    fn raw(&mut self, ports: &mut Ports, bytes: Vec<u8>) -> Vec<(u32, u16, u16, Vec<u8>)> {
        let request = Request {
            readable_cuts: vec![bytes.len() as u32],
            readable: bytes,
            indirect: true,
            ..Request::default()
        };
        self.from.ask(&self.ram, &request).unwrap();
        let turn = ports.listen(&mut self.queues.1, &self.ram, &mut ()).unwrap();
        assert!(!turn.again);
        self.from.take(&self.ram);
        self.from.arm(&self.ram);
        self.heard(ports)
    }

    fn heard(&mut self, ports: &mut Ports) -> Vec<(u32, u16, u16, Vec<u8>)> {
        ports.speak(&mut self.queues.0, &self.ram, &mut ()).unwrap();
        let replies = self.to.take(&self.ram).into_iter().map(|reply| {
            let (head, tail) = reply.bytes[..reply.written as usize].split_at(8);
            let ConsoleControl { port, event, value } = ConsoleControl::from_bytes(head.try_into().unwrap());
            (port, event, value, tail.to_vec())
        });
        let replies = replies.collect();
        while self
            .to
            .ask(&self.ram, &Request { writable: vec![32], indirect: true, ..Request::default() })
            .is_some()
        {}
        replies
    }
}

#[test]
fn ports_are_introduced_and_change() {
    assert_eq!((queues(0), queues(1), queues(2), CONTROL), ((0, 1), (4, 5), (6, 7), (2, 3)));
    let (mut control, mut ports) = (Control::new(), ports());
    assert_eq!(control.heard(&mut ports), [], "nothing before the driver is ready");
    assert_eq!(control.say(&mut ports, (0, 3, 1)), []);
    assert_eq!(control.say(&mut ports, (0, 0, 1)), [(0, 1, 0, vec![]), (3, 1, 0, vec![])]);
    let console = [(0, 4, 1, vec![]), (0, 5, 0, vec![80, 0, 25, 0]), (0, 6, 1, vec![])];
    assert_eq!(control.say(&mut ports, (0, 3, 1)), console);
    assert_eq!(control.say(&mut ports, (3, 3, 1)), [(3, 7, 0, b"org.example.0".to_vec())]);
    assert_eq!(control.say(&mut ports, (3, 6, 1)), []);
    assert_eq!(ports.state.opened, 8);
    assert!(ports.set(0, Some(Port { size: (132, 50), ..CONSOLE })));
    assert!(ports.set(3, Some(Port { is_open: true, ..STREAM })));
    assert_eq!(control.heard(&mut ports), [(0, 5, 0, vec![132, 0, 50, 0]), (3, 6, 1, vec![])]);
    assert!(ports.set(0, Some(Port { size: (132, 50), ..CONSOLE })));
    assert_eq!(control.heard(&mut ports), [], "nothing has changed");
    assert!(ports.set(3, None) && ports.set(5, Some(STREAM)) && !ports.set(PORTS, None));
    assert_eq!(control.heard(&mut ports), [(3, 2, 0, vec![]), (5, 1, 0, vec![])]);
    assert_eq!(ports.state.opened, 0);
    for (port, event) in [(3, 3), (9, 3), (16, 6), (u32::MAX, 6), (0, 9), (0, 1)] {
        assert_eq!(control.say(&mut ports, (port, event, 1)), [], "port {port}, event {event}");
    }
    assert_eq!(control.raw(&mut ports, vec![0; 7]), []);
    // A device that is started anew with what was kept goes on; without it, the driver is asked nothing.
    let kept = ports.state;
    let mut again = Ports::new([Some(CONSOLE); PORTS], kept);
    assert!(again.set(0, Some(Port { size: (1, 2), ..CONSOLE })));
    assert_eq!(control.heard(&mut again), [(0, 5, 0, vec![1, 0, 2, 0])]);
    again.reset();
    assert_eq!(again.state, State::default());
}

/// What is kept, and when.
#[derive(Default)]
struct Kept(Vec<(u16, ConsoleControl)>, Vec<[u64; WORDS]>);

impl Journal for Kept {
    fn says(&mut self, position: u16, message: ConsoleControl) {
        self.0.push((position, message));
    }

    fn keep(&mut self, words: [u64; WORDS]) {
        self.1.push(words);
    }
}

#[test]
fn that_a_port_was_closed_is_told_before_it_is_open_again() {
    let (mut control, mut ports) = (Control::new(), ports());
    control.say(&mut ports, (0, 0, 1));
    control.say(&mut ports, (3, 3, 1));
    let set = |ports: &mut Ports, is_open| assert!(ports.set(3, Some(Port { is_open, ..STREAM })));
    set(&mut ports, true);
    set(&mut ports, false);
    assert_eq!(control.heard(&mut ports), [], "it was not told that it was open");
    set(&mut ports, true);
    assert_eq!(control.heard(&mut ports), [(3, 6, 1, vec![])]);
    for is_open in [false, true, false, true] {
        set(&mut ports, is_open);
    }
    assert_eq!(control.heard(&mut ports), [(3, 6, 0, vec![]), (3, 6, 1, vec![])]);
}

#[test]
fn what_is_kept_is_all_that_was_said() {
    let (mut control, mut ports) = (Control::new(), ports());
    control.say(&mut ports, (0, 0, 1));
    control.say(&mut ports, (3, 3, 1));
    control.say(&mut ports, (3, 6, 1));
    assert!(ports.set(3, Some(Port { is_open: true, ..STREAM })));
    let mut kept = Kept::default();
    ports.speak(&mut control.queues.0, &control.ram, &mut kept).unwrap();
    let Kept(says, keeps) = kept;
    assert_eq!((says.len(), keeps.last()), (1, Some(&ports.words())));
    let (position, message) = says[0];
    assert_eq!((position + 1, message.event), (control.queues.0.position(), ConsoleControl::PORT_OPEN));
    let mut list = [None; PORTS];
    (list[0], list[3]) = (Some(CONSOLE), Some(STREAM));
    let mut again = Ports::resume(list, ports.words());
    assert_eq!((again.state, again.get(3).map(|port| port.is_open)), (ports.state, Some(true)));
    again.set(3, Some(STREAM));
    assert!(again.has_news());
    // Whoever was killed before it kept that it has sent it does not send it again.
    again.said(ConsoleControl { port: 3, event: ConsoleControl::PORT_OPEN, value: 0 });
    assert!(!again.has_news());
    again.said(ConsoleControl { port: 99, event: 99, value: 0 });
}

#[test]
fn what_nobody_is_to_have_is_done() {
    let random = &mut Random(7);
    let ram = Ram::new(0x8_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x1000);
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS);
    (0..5).for_each(|_| assert!(guest.ask(&ram, &written(random, &[1; 300])).is_some()));
    let (mut output, mut sink) = (Output::default(), Out(Vec::new(), 100));
    assert!(!output.serve(&mut queue, &ram, &mut sink, 9).unwrap().again);
    assert_eq!(sink.0.len(), 100, "it is full");
    let turn = output.discard(&mut queue, &ram, 2).unwrap();
    assert!(turn.again && turn.interrupt);
    assert_eq!(guest.take(&ram).len(), 2, "the one that had begun, and another");
    assert!(!output.discard(&mut queue, &ram, 9).unwrap().again);
    assert_eq!(guest.take(&ram).len(), 3);
    assert!(guest.ask(&ram, &written(random, &[2; 10])).is_some());
    sink.1 = 100;
    assert!(!output.serve(&mut queue, &ram, &mut sink, 9).unwrap().again);
    assert_eq!(sink.0[100..], [2; 10], "what follows is passed on");
}

/// What a port has passed on, as far as there is room.
#[derive(Default)]
struct Out(Vec<u8>, usize);

impl Sink for Out {
    fn room(&self) -> usize {
        self.1
    }

    fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.1);
        self.0.extend(bytes);
        self.1 -= bytes.len();
    }
}

fn written(random: &mut Random, bytes: &[u8]) -> Request {
    let readable_cuts = random.cut(bytes.len() as u32, 4);
    Request { readable: bytes.to_vec(), readable_cuts, indirect: true, ..Request::default() }
}

proptest! {
    /// However buffers are cut, the sink fills and the budget ends: bytes come in order, none is lost.
    #[test]
    fn bytes_go_both_ways(seed in 1u64..) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x10_0000, Fuse::default());
        let [mut to, mut from] = [0, 0x8_0000].map(|at| Guest::new(&ram, Ram::BASE + at, 16, OPTIONS, 0x1000));
        let mut queues = [&to, &from].map(|guest| Queue::new(guest.ring.layout, OPTIONS, BUFFERS));
        let (mut output, mut sink, mut sent) = (Output::default(), Out::default(), Vec::new());
        let (typed, mut done, mut read) = (random.bytes(3000), 0, Vec::<u8>::new());
        for _ in 0..100 {
            let length = random.below(500) as usize;
            let bytes = random.bytes(length);
            if from.ask(&ram, &written(random, &bytes)).is_some() {
                sent.extend(bytes);
            }
            sink.1 += random.below(600) as usize;
            let _ = output.serve(&mut queues[1], &ram, &mut sink, random.below(6) as u32).unwrap();
            from.take(&ram);
            let room = random.cut(random.clone().below(100) as u32 + 1, 3);
            to.ask(&ram, &Request { writable: room, indirect: true, ..Request::default() });
            let end = (done + random.below(120) as usize).min(typed.len());
            let mut noted = 0;
            let came = input(&mut queues[0], &ram, &typed[done..end], |_, count| noted = count).unwrap().0;
            prop_assert_eq!(came, noted);
            done += came;
            for reply in to.take(&ram) {
                read.extend(&reply.bytes[..reply.written as usize]);
            }
        }
        sink.1 = 1 << 20;
        while output.serve(&mut queues[1], &ram, &mut sink, 5).unwrap().again {}
        prop_assert!(sink.0 == sent);
        prop_assert!(read == typed[..done]);
    }

    /// Killed at any step: of what the driver has written, at most one buffer comes again.
    #[test]
    fn a_console_that_is_killed_loses_nothing(seed in 1u64.., step in 0u64..60) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x8_0000, Fuse::default());
        let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x1000);
        let texts: Vec<_> = (0..6u8).map(|number| vec![number; 1 + random.below(300) as usize]).collect();
        texts.iter().for_each(|text| assert!(guest.ask(&ram, &written(random, text)).is_some()));
        let mut sink = Out(Vec::new(), 1 << 20);
        ram.fuse.arm(step);
        let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS);
        let _ = Output::default().serve(&mut queue, &ram, &mut sink, 100);
        ram.fuse.mend();
        let before = sink.0.len();
        let mut queue = Queue::resume(&ram, guest.ring.layout, OPTIONS, BUFFERS).unwrap();
        // Whoever knows how much that was says nothing twice.
        let mut other = Queue::resume(&ram, guest.ring.layout, OPTIONS, BUFFERS).unwrap();
        let complete: usize = texts.iter().take(other.position().into()).map(Vec::len).sum();
        let mut rest = Out(sink.0.clone(), 1 << 20);
        if before > complete || ram.fuse.is_blown() {
            prop_assert!(before >= complete);
            ram.fuse.mend();
        }
        let passed = (before - complete) as u64;
        let turn = Output::resume(passed).serve(&mut other, &ram, &mut rest, 0).unwrap();
        prop_assert!(turn.again && rest.0.len() == before);
        let _ = Output::default().serve(&mut queue, &ram, &mut sink, 100).unwrap();
        prop_assert_eq!(guest.take(&ram).len(), 6);
        let all = texts.concat();
        let (first, second) = sink.0.split_at(before);
        prop_assert!(all.starts_with(first) && all.ends_with(second) && first.len() + second.len() >= all.len());
        prop_assert!(first.len() + second.len() <= all.len() + 300);
    }

    #[test]
    fn hostile_rings_are_answered(seed in 1u64..) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x8_0000, Fuse::default());
        let mut guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x1000);
        let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS);
        for _ in 0..8 {
            let mut request = written(random, &[0, 0, 0, 0, 0, 0, 1, 0, 5]);
            request.writable = vec![40];
            let _ = guest.ask(&ram, &request);
        }
        let (mut ports, mut output) = (ports(), Output::default());
        for _ in 0..40 {
            ram.disturb(random, 0x180);
            let result = match random.below(4) {
                0 => ports.listen(&mut queue, &ram, &mut ()).map(drop),
                1 => ports.speak(&mut queue, &ram, &mut ()).map(drop),
                2 => output.serve(&mut queue, &ram, &mut Out(Vec::new(), 5000), 20).map(drop),
                _ => input(&mut queue, &ram, &[1; 100], |_, _| {}).map(drop),
            };
            if result.is_err() {
                output = Output::default();
                queue = Queue::resume(&ram, guest.ring.layout, OPTIONS, BUFFERS).unwrap();
            }
            prop_assert!(ram.fuse.steps() < 40 * 150, "bounded: {}", ram.fuse.steps());
        }
    }
}
