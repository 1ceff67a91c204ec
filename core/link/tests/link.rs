// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames and text over a good line, and over one that loses, doubles and changes bytes.

use proptest::prelude::*;
use turnstile_link::{
    Command, Decoder, Down, DownLink, EncodeError, Event, Events, Exits, Item, MAX_BUCKETS, MAX_BYTES,
    MAX_FRAME, MAX_TEXT, Memory, Outcome, Pool, RESYNC, START, Statistics, StopReason, Up, UpLink, VmState,
    clip, encode, send,
};

/// What a reader handed out, owned.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Text(Vec<u8>),
    /// A message as its encoded frame, which tells any two messages apart.
    Frame(Vec<u8>),
}

fn frame(message: &Up<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    send(message, |bytes| frame.extend_from_slice(bytes)).unwrap();
    frame
}

/// Reads the bytes with a fresh decoder; neighbouring text is joined. Also returns the damaged frames.
fn read(line: &[u8]) -> (Vec<Seen>, u32) {
    let mut decoder = Decoder::<UpLink>::new();
    let mut seen: Vec<Seen> = Vec::new();
    for &byte in line {
        match decoder.push(byte) {
            Some(Item::Text(byte)) => match seen.last_mut() {
                Some(Seen::Text(text)) => text.push(byte),
                _ => seen.push(Seen::Text(vec![byte])),
            },
            Some(Item::Message(message)) => seen.push(Seen::Frame(frame(&message))),
            None => {}
        }
    }
    assert_eq!(decoder.unknown(), 0);
    (seen, decoder.damaged())
}

fn text(text: &str) -> Seen {
    Seen::Text(text.as_bytes().to_vec())
}

const CONSOLE: Up<'_> = Up::Console { vm: 1, bytes: b"login: \0\xff" };
const DONE: Up<'_> = Up::Done { crashed: 2 };

#[test]
fn every_message_up_reads_back() {
    let event = |event| Up::Event { vm: 15, event };
    let messages = [
        Up::Hello { version: 1, hypervisor: "0.1.0", cpus: 4, vms: 2 },
        Up::Vm { vm: 0, name: "linux", vcpus: 64, state: VmState::Running, room: 0 },
        Up::Vm {
            vm: 1,
            name: "a-name-of-thirty-one-characters",
            vcpus: 1,
            state: VmState::Stopped,
            room: 1024,
        },
        Up::Vm { vm: 2, name: "paused", vcpus: 1, state: VmState::Paused, room: 1 },
        Up::Room { vm: 1, bytes: 256 },
        Up::Port { vm: 1, port: 13, bytes: b"\0\xfd\0" },
        Up::PortRoom { vm: 1, port: 255, bytes: 1024 },
        Up::PortClosed { vm: 255, port: 1 },
        CONSOLE,
        event(Event::Started { boots: 1_000_000, free_memory: u64::MAX, free_tables: u32::MAX }),
        event(Event::Stopped { reason: StopReason::PowerOff, restarts: false }),
        event(Event::Stopped { reason: StopReason::Reset, restarts: true }),
        event(Event::Paused),
        event(Event::Resumed { microseconds: u64::MAX }),
        event(Event::Crashed { text: "stage 2 fault" }),
        Up::Fault { text: "page fault at 0xdead" },
        Up::Reply { command: Command::Restart { vm: 3 }, outcome: Outcome::NoSuchVm },
        DONE,
        Up::Statistics(Statistics { vm: 2, vcpu: 63, boots: 7, ticks: u64::MAX, frequency: 62_500_000 }),
        Up::Exits(Exits { vm: 2, vcpu: 63, reason: 11, total: 1 << 40, first: 48, counts: [3; MAX_BUCKETS] }),
        Up::Events(Events { vm: 2, vcpu: 63, first: 16, counts: [1 << 40; MAX_BUCKETS] }),
        Up::Reply { command: Command::Statistics { vm: 2 }, outcome: Outcome::NotKept },
        Up::Memory { vm: 31, memory: Memory { bytes: 2 << 20, limit: 1 << 40, waits: true } },
        Up::Pool(Pool { bytes: 1 << 40, free: 0 }),
        Up::Reply { command: Command::Memory, outcome: Outcome::Accepted },
        Up::Reply { command: Command::Balloon { vm: 31, bytes: u64::MAX }, outcome: Outcome::NoBalloon },
    ];
    for message in messages {
        let mut decoder = Decoder::<UpLink>::new();
        let frame = frame(&message);
        let (last, rest) = frame.split_last().unwrap();
        assert!(rest.iter().all(|&byte| decoder.push(byte).is_none()));
        assert_eq!(decoder.push(*last), Some(Item::Message(message)));
    }
}

#[test]
fn every_message_down_reads_back() {
    let messages = [
        Down::Input { vm: 2, bytes: b"ls\r" },
        Down::Size { vm: 3, columns: 132, rows: u16::MAX },
        Down::PortOpen { vm: 3, port: 1, boots: u32::MAX, room: u16::MAX },
        Down::PortClose { vm: 3, port: 1 },
        Down::Port { vm: 3, port: 1, bytes: b"\0\0\xfd" },
        Down::PortRoom { vm: 3, port: 255, bytes: 1 },
        Down::Command(Command::Hello),
        Down::Command(Command::Restart { vm: 0 }),
        Down::Command(Command::Stop { vm: 255 }),
        Down::Command(Command::Pause { vm: 3 }),
        Down::Command(Command::Resume { vm: 4 }),
        Down::Command(Command::Poweroff),
        Down::Command(Command::Statistics { vm: 15 }),
        Down::Command(Command::Memory),
        Down::Command(Command::Balloon { vm: 31, bytes: 1 << 40 }),
    ];
    for message in messages {
        let mut decoder = Decoder::<DownLink>::new();
        let mut buffer = [0; MAX_FRAME];
        let (last, rest) = encode(&message, &mut buffer).unwrap().split_last().unwrap();
        assert!(rest.iter().all(|&byte| decoder.push(byte).is_none()));
        assert_eq!(decoder.push(*last), Some(Item::Message(message)));
    }
}

/// The CRC-32 of a payload, by the reflected polynomial, bit by bit.
fn crc(payload: &[u8]) -> [u8; 4] {
    let crc = !(payload.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    }));
    crc.to_le_bytes()
}

/// The form on the line is fixed by the version: this is one frame, byte for byte.
#[test]
fn the_form_of_a_frame_is_fixed() {
    let frame = frame(&DONE);
    assert_eq!(frame[..5], [0, START, 7, 7, 2]);
    assert_eq!(frame[5..9], crc(&[7, 2]));
    assert_eq!(frame[9..], [0]);
}

/// A frame is intact and of a known message, but a field has no such value.
#[test]
fn figures_of_memory_that_cannot_be_are_no_message() {
    for (waits, is_known) in [(1, true), (2, false), (0xff, false)] {
        let payload = [15, 3, 5, 6, waits];
        let stuffed = [&payload[..], &crc(&payload)].concat();
        assert!(!stuffed.contains(&0), "nothing is to be stuffed");
        let line = [&[0, START, stuffed.len() as u8 + 1][..], &stuffed, &[0]].concat();
        let mut decoder = Decoder::<UpLink>::new();
        let (last, rest) = line.split_last().unwrap();
        assert!(rest.iter().all(|byte| decoder.push(*byte).is_none()));
        let memory = Memory { bytes: 5, limit: 6, waits: true };
        let memory = Item::Message(Up::Memory { vm: 3, memory });
        assert_eq!(decoder.push(*last), is_known.then_some(memory), "{waits}");
        assert_eq!((decoder.unknown(), decoder.damaged()), (u32::from(!is_known), 0));
    }
}

#[test]
fn the_longest_messages_fit_and_longer_ones_are_refused() {
    let mut buffer = [0; MAX_FRAME];
    for byte in [0, 1, 0xff] {
        let bytes = [byte; MAX_BYTES];
        assert!(encode(&Up::Console { vm: 255, bytes: &bytes }, &mut buffer).is_ok());
        assert!(encode(&Down::Input { vm: 255, bytes: &bytes }, &mut buffer).is_ok());
        assert!(encode(&Up::Port { vm: 255, port: 255, bytes: &bytes }, &mut buffer).is_ok());
        assert!(encode(&Down::Port { vm: 255, port: 255, bytes: &bytes }, &mut buffer).is_ok());
    }
    let text = "x".repeat(MAX_TEXT);
    assert!(encode(&Up::Event { vm: 255, event: Event::Crashed { text: &text } }, &mut buffer).is_ok());
    assert!(encode(&Up::Fault { text: &text }, &mut buffer).is_ok());

    // Every number as long as it gets.
    let counts = [u64::MAX; MAX_BUCKETS];
    let exits = Up::Exits(Exits { vm: 255, vcpu: 255, reason: 255, total: u64::MAX, first: 255, counts });
    assert!(encode(&exits, &mut buffer).is_ok());
    assert!(encode(&Up::Events(Events { vm: 255, vcpu: 255, first: 255, counts }), &mut buffer).is_ok());
    let memory = Memory { bytes: u64::MAX, limit: u64::MAX, waits: true };
    assert!(encode(&Up::Memory { vm: 255, memory }, &mut buffer).is_ok());
    assert!(encode(&Up::Pool(Pool { bytes: u64::MAX, free: u64::MAX }), &mut buffer).is_ok());
    let (boots, ticks, frequency) = (u32::MAX, u64::MAX, u64::MAX);
    assert!(
        encode(&Up::Statistics(Statistics { vm: 255, vcpu: 255, boots, ticks, frequency }), &mut buffer)
            .is_ok()
    );

    // To the last byte of a frame: message number, VM and length take four.
    let bytes = [1; 253];
    assert_eq!(encode(&Up::Console { vm: 1, bytes: &bytes[..252] }, &mut buffer).unwrap().len(), MAX_FRAME);
    assert_eq!(encode(&Up::Console { vm: 1, bytes: &bytes }, &mut buffer), Err(EncodeError));
    let full = frame(&Up::Console { vm: 1, bytes: &bytes[..252] });
    assert_eq!(read(&full), (vec![Seen::Frame(full)], 0));
    let mut called = false;
    assert_eq!(send(&Up::Console { vm: 1, bytes: &bytes }, |_| called = true), Err(EncodeError));
    assert!(!called);
}

#[test]
fn texts_are_clipped_between_characters() {
    assert_eq!(clip("short"), "short");
    assert_eq!(clip(&"x".repeat(500)).len(), MAX_TEXT);
    let text = format!("{}€", "x".repeat(MAX_TEXT - 1));
    assert_eq!(clip(&text), "x".repeat(MAX_TEXT - 1));
}

#[test]
fn text_around_frames_passes_at_once() {
    let (console, done) = (frame(&CONSOLE), frame(&DONE));
    let line = [b"Turnstile 0.1.0\r\n", &console[..], &done, b"bye\n"].concat();
    let expected = [text("Turnstile 0.1.0\r\n"), Seen::Frame(console), Seen::Frame(done), text("bye\n")];
    assert_eq!(read(&line), (expected.to_vec(), 0));

    let mut decoder = Decoder::<UpLink>::new();
    for byte in "größe ✓\n".bytes() {
        assert_eq!(decoder.push(byte), Some(Item::Text(byte)));
    }
}

#[test]
fn a_panic_within_a_frame_is_read_from_its_first_character() {
    let (console, done) = (frame(&CONSOLE), frame(&DONE));
    for cut in 0..console.len() {
        let line = [&console[..cut], &RESYNC, b"panic: x\n", &done].concat();
        let (mut seen, _) = read(&line);
        // Without only its last byte the frame was complete: the resynchronization ends it.
        if cut == console.len() - 1 {
            assert_eq!(seen.remove(0), Seen::Frame(console.clone()));
        }
        assert_eq!(seen, [text("panic: x\n"), Seen::Frame(done.clone())], "cut after {cut}");
    }
    // Outside a frame it is not even counted.
    assert_eq!(read(&[&RESYNC[..], b"panic"].concat()), (vec![text("panic")], 0));
}

#[test]
fn one_changed_lost_or_doubled_byte_loses_one_frame_at_most() {
    let (first, second, third) = (frame(&CONSOLE), frame(&DONE), frame(&Up::Fault { text: "last" }));
    let check = |line: Vec<u8>, what: &str| {
        let (seen, damaged) = read(&line);
        let frames: Vec<_> = seen.iter().filter(|item| matches!(item, Seen::Frame(_))).collect();
        let kept: Vec<_> = [&first, &second, &third].into_iter().cloned().map(Seen::Frame).collect();
        assert!(frames.len() >= 2, "{what}: {seen:?}");
        assert!(frames.iter().all(|frame| kept.contains(frame)), "{what}: a wrong frame was accepted");
        assert!(frames.contains(&&kept[0]) && frames.contains(&&kept[2]), "{what}: {seen:?}");
        // A start that became 0x00 looks like a resynchronization, which is no damage.
        let counted = damaged >= 1 || what == "byte 1 is 0x0";
        assert!(frames.len() == 3 || counted, "{what}: a frame was lost and not counted");
    };
    for at in 0..second.len() {
        for value in 0..=255 {
            let mut changed = second.clone();
            changed[at] = value;
            check([&first[..], &changed, &third].concat(), &format!("byte {at} is {value:#x}"));
        }
        let mut lost = second.clone();
        lost.remove(at);
        check([&first[..], &lost, &third].concat(), &format!("byte {at} is lost"));
        let mut doubled = second.clone();
        doubled.insert(at, second[at]);
        check([&first[..], &doubled, &third].concat(), &format!("byte {at} is doubled"));
    }
}

#[test]
fn a_frame_without_an_end_does_not_swallow_the_line() {
    let done = frame(&DONE);
    let mut line = vec![0, START];
    line.extend(std::iter::repeat_n(b'x', 1000));
    line.extend(&done);
    let (seen, damaged) = read(&line);
    assert_eq!(damaged, 1);
    assert!(matches!(&seen[..], [Seen::Text(text), Seen::Frame(_)] if text.len() > 700));
}

#[test]
fn an_unknown_message_is_counted_as_such() {
    // An intact frame of the other direction, whose number no `Down` message has.
    let mut decoder = Decoder::<DownLink>::new();
    assert!(frame(&DONE).into_iter().all(|byte| decoder.push(byte).is_none()));
    assert_eq!((decoder.unknown(), decoder.damaged()), (1, 0));
    assert_eq!(decoder.push(b'x'), Some(Item::Text(b'x')));
}

/// A piece of a line: text without 0x00, a console message, a part of statistics, or figures of memory.
#[derive(Debug, Clone)]
enum Piece {
    Text(Vec<u8>),
    Console(u8, Vec<u8>),
    Exits(u8, u64, [u64; MAX_BUCKETS]),
    Memory(u8, u64, u64),
}

fn piece() -> impl Strategy<Value = Piece> {
    // Text as it is: UTF-8, so never START.
    let text = "[^\0]{1,60}".prop_map(|text| Piece::Text(text.into_bytes()));
    let console = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..=MAX_BYTES))
        .prop_map(|(vm, bytes)| Piece::Console(vm, bytes));
    let exits = (any::<u8>(), any::<u64>(), any::<[u64; MAX_BUCKETS]>())
        .prop_map(|(byte, total, counts)| Piece::Exits(byte, total, counts));
    let memory = (any::<u8>(), any::<u64>(), any::<u64>())
        .prop_map(|(vm, bytes, more)| Piece::Memory(vm, bytes, more));
    prop_oneof![text, console, exits, memory]
}

/// The bytes of the pieces, and what a reader must hand out.
fn line(pieces: &[Piece]) -> (Vec<u8>, Vec<Seen>) {
    let (mut line, mut expected) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                line.extend(text);
                match expected.last_mut() {
                    Some(Seen::Text(before)) => before.extend(text),
                    _ => expected.push(Seen::Text(text.clone())),
                }
            }
            Piece::Console(vm, bytes) => {
                let frame = frame(&Up::Console { vm: *vm, bytes });
                line.extend(&frame);
                expected.push(Seen::Frame(frame));
            }
            Piece::Exits(byte, total, counts) => {
                let (vm, vcpu, reason, first) = (*byte, *total as u16, byte ^ 2, byte ^ 3);
                let exits = Up::Exits(Exits { vm, vcpu, reason, total: *total, first, counts: *counts });
                line.extend(frame(&exits));
                expected.push(Seen::Frame(frame(&exits)));
            }
            Piece::Memory(vm, bytes, more) => {
                let memory = Memory { bytes: *bytes, limit: *more, waits: vm & 1 != 0 };
                let pool = Pool { bytes: *bytes, free: *more };
                for frame in [frame(&Up::Memory { vm: *vm, memory }), frame(&Up::Pool(pool))] {
                    line.extend(&frame);
                    expected.push(Seen::Frame(frame));
                }
            }
        }
    }
    (line, expected)
}

proptest! {
    #[test]
    fn a_good_line_reads_as_it_was_written(pieces in prop::collection::vec(piece(), 0..20)) {
        let (line, expected) = line(&pieces);
        prop_assert_eq!(read(&line), (expected, 0));
    }

    /// Anything at all may come before a resynchronization.
    #[test]
    fn reading_begins_anywhere(
        garbage in prop::collection::vec(any::<u8>(), 0..600),
        pieces in prop::collection::vec(piece(), 0..6),
    ) {
        let (line, mut expected) = line(&pieces);
        // A first frame keeps what the garbage left of text apart from the text of the pieces.
        expected.insert(0, Seen::Frame(frame(&DONE)));
        let (seen, _) = read(&[&garbage[..], &RESYNC, &frame(&DONE), &line].concat());
        prop_assert!(seen.ends_with(&expected), "{seen:?} does not end with {expected:?}");
    }

    /// Garbage between two frames costs neither, as long as it does not look like a third.
    #[test]
    fn garbage_between_frames_costs_neither(garbage in prop::collection::vec(any::<u8>(), 0..600)) {
        let (first, last) = (frame(&CONSOLE), frame(&DONE));
        let (seen, _) = read(&[&first[..], &garbage, &last].concat());
        prop_assert_eq!(seen.first(), Some(&Seen::Frame(first)));
        // A frame that the garbage opens ends with the last one's first byte: that one is still read.
        prop_assert_eq!(seen.last(), Some(&Seen::Frame(last)));
    }
}
