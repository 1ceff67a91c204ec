// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that are passed on without being written down, and the same packets as frames: what becomes of them is the same, and nobody has what is not for it.

mod common;

use common::{Net, OPTIONS, VMS, Vm, mac, memories};
use proptest::prelude::*;
use turnstile_net::control::{Control, Limits};
use turnstile_net::settings::{Accepts, SENDS, TAKES};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_switch::port::Rules;
use turnstile_switch::rate::Rate;
use turnstile_switch::relay::Device;
use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::Queue;

/// Where the second pair of queues of each VM is, and the queue of its commands.
const SECOND: [u64; 2] = [Ram::BASE + 0xa_0000, Ram::BASE + 0xd_0000];
const COMMANDS: u64 = Ram::BASE + 0xf_4000;

/// What a VM is, and what its port may do.
#[derive(Clone, Copy, Debug)]
struct Kind {
    accepts: Accepts,
    rules: Rules,
    /// It has agreed to several pairs.
    is_of_several: bool,
    /// It wants packets to itself, to all, and of a VLAN alone.
    is_choosy: bool,
}

/// What happens.
#[derive(Debug)]
enum Step {
    /// A VM sends a packet by one of its pairs.
    Send { from: usize, pair: usize, header: NetworkHeader, bytes: Vec<u8> },
    /// The switch takes some of what a pair has to send.
    Pump { from: usize, pair: usize, most: u32 },
    /// A driver asks for so many pairs.
    Pairs(usize, u8),
    /// A driver resets its device, which had packets to send.
    Reset(usize),
}

/// Half of all.
fn maybe(random: &mut Random) -> bool {
    random.below(2) == 0
}

fn kind(random: &mut Random, number: usize) -> Kind {
    let mut both = || [maybe(random), maybe(random)];
    let accepts = Accepts { checksum: both(), tso4: both(), tso6: both(), ecn: both(), merge: both()[0] };
    let rules = Rules {
        mac: maybe(random).then(|| mac(number)),
        isolated: random.below(3) == 0,
        rate: (random.below(4) == 0).then(|| Rate::new(80_000_000, 500)),
        impatient: random.below(4) == 0,
    };
    Kind { accepts, rules, is_of_several: maybe(random), is_choosy: random.below(3) == 0 }
}

/// The header of a packet: usually one that makes sense.
fn header(random: &mut Random) -> NetworkHeader {
    let any = NetworkHeader::from_bytes(random.bytes(12)[..].try_into().unwrap());
    let start = [34, 38, 14, 13, 54][random.below(5) as usize];
    let offset = [6, 16, 0, 200, 1500, u16::MAX][random.below(6) as usize];
    let open = NetworkHeader {
        flags: any.flags | 1,
        gso_type: 0,
        checksum_start: start,
        checksum_offset: offset,
        ..any
    };
    match random.below(8) {
        0 | 1 => NetworkHeader::PLAIN,
        2 => NetworkHeader { gso_type: 0, flags: any.flags & !1, ..any },
        3 => NetworkHeader {
            gso_type: [1, 0x81, 4, 3][random.below(4) as usize],
            gso_size: 300,
            checksum_start: 34,
            checksum_offset: 16,
            ..open
        },
        4 => any,
        5 => NetworkHeader { checksum_start: 34, checksum_offset: 6, ..open },
        _ => open,
    }
}

/// A packet with a number: usually to somebody who is there, and of the VM that sends it.
fn packet(random: &mut Random, from: usize, number: u32) -> Vec<u8> {
    let [all, group, reserved, unknown] =
        [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [1, 0x80, 0xc2, 0, 0, 3], [2, 9, 9, 9, 9, 9]];
    let to = match random.below(12) {
        0 => all,
        1 => group,
        2 => reserved,
        3 => unknown,
        _ => mac(random.below(VMS as u64) as usize),
    };
    let sender = match random.below(12) {
        0 => mac(random.below(VMS as u64) as usize),
        1 => group,
        2 => [0; 6],
        _ => mac(from),
    };
    let tag: &[u8] = [&[0x81, 0, 0, 5][..], &[0x81, 0, 0, 6], &[0x88, 0xa8, 0, 5], &[], &[], &[]]
        [random.below(6) as usize];
    let (kind, protocol) =
        ([[8, 0], [0x86, 0xdd], [8, 6]][random.below(3) as usize], [6, 17, 1][random.below(3) as usize]);
    let mut bytes = [&to[..], &sender, tag, &kind].concat();
    let mut ip = vec![0x45, 0, 0, 40];
    ip.extend(number.to_le_bytes());
    ip.extend([64, protocol, 0, 0, 10, 0, 0, from as u8, 10, 0, 0, 1]);
    ip.extend([0, random.below(4) as u8, 0, random.below(4) as u8]);
    ip.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(ip);
    let more = [0, 2, 60, 600, 1500, 1700][random.below(6) as usize];
    let more = random.below(more + 1) as usize;
    bytes.extend(random.bytes(more));
    if random.below(16) == 0 {
        bytes.truncate(random.below(24) as usize);
    }
    bytes
}

fn step(random: &mut Random, kinds: &[Kind], number: u32) -> Step {
    let from = random.below(VMS as u64) as usize;
    let pair = if kinds[from].is_of_several { random.below(2) as usize } else { 0 };
    match random.below(24) {
        0..=13 => Step::Send { from, pair, header: header(random), bytes: packet(random, from, number) },
        14..=21 => Step::Pump { from, pair, most: 1 + random.below(6) as u32 },
        22 if kinds[from].is_of_several => Step::Pairs(from, 1 + random.below(2) as u8),
        22 => Step::Pump { from, pair, most: 20 },
        _ => Step::Reset(from),
    }
}

/// A VM, with two pairs of queues and one for commands.
struct Both {
    first: Vm,
    second: Vm,
    commands: Guest,
}

impl Both {
    fn new(ram: &Ram, kind: &Kind) -> Self {
        let vm = |[send, receive]: [u64; 2], sizes: [u16; 2]| {
            let mut vm = Vm::new(ram, false, kind.accepts.merge);
            vm.accepts = kind.accepts;
            vm.send = Guest::new(ram, send, sizes[0], OPTIONS, 0x2000);
            vm.receive = Guest::new(ram, receive, sizes[1], OPTIONS, 0x1000);
            vm
        };
        let first = vm([Ram::BASE, Ram::BASE + 0x4_0000], [16, 32]);
        let second = vm(SECOND, [8, 16]);
        let commands = Guest::new(ram, COMMANDS, 4, OPTIONS, 0x1000);
        assert!(commands.end() <= Ram::BASE + ram.length() as u64);
        Self { first, second, commands }
    }

    fn pair(&mut self, pair: usize) -> &mut Vm {
        if pair == 0 { &mut self.first } else { &mut self.second }
    }
}

/// The VMs on their switch, and what was seen of them.
struct World<'a> {
    net: Net,
    kinds: &'a [Kind],
    memories: [Ram; VMS],
    vms: Vec<Both>,
    /// How what is sent and received is cut.
    cuts: Random,
    /// Whether what is sent, and what is received, lies in one buffer.
    simple: [bool; 2],
    seen: Vec<String>,
}

impl<'a> World<'a> {
    fn new(kinds: &'a [Kind], simple: [bool; 2]) -> Self {
        let memories = memories(&Fuse::default());
        let vms = kinds.iter().zip(&memories).map(|(kind, ram)| Both::new(ram, kind)).collect();
        let (net, cuts) = (Net::new(), Random(7));
        let mut world = Self { net, kinds, memories, vms, cuts, simple, seen: vec![] };
        for (port, kind) in kinds.iter().enumerate() {
            world.net.switch().attach(port, kind.rules);
            world.begin(port);
        }
        world
    }

    /// A driver is ready.
    fn begin(&mut self, port: usize) {
        let (kind, ram) = (self.kinds[port], &self.memories[port]);
        let device = Device::new(Control::new(mac(port)), kind.accepts, 1600);
        self.net.set_device(port, Some(device));
        let vms = &self.vms[port];
        let queues = [&vms.first.receive, &vms.first.send, &vms.second.receive, &vms.second.send];
        for (number, guest) in queues.into_iter().enumerate().take(if kind.is_of_several { 4 } else { 2 }) {
            let layout = Some((guest.ring.layout, guest.ring.options));
            assert_eq!(self.net.set_queue((port, number), ram, layout, false), Ok(true));
        }
        if kind.is_choosy {
            self.command(port, &[0, 0, 0]);
            self.command(port, &[2, 0, 5, 0]);
        }
    }

    /// A driver makes a command.
    fn command(&mut self, port: usize, command: &[u8]) {
        let (ram, commands) = (&self.memories[port], &mut self.vms[port].commands);
        *commands = Guest::new(ram, COMMANDS, 4, OPTIONS, 0x1000);
        let (readable, readable_cuts) = (command.to_vec(), vec![command.len() as u32]);
        let request = Request { readable, readable_cuts, writable: vec![1], indirect: false };
        commands.ask(ram, &request).expect("there is room");
        let mut queue = Queue::new(commands.ring.layout, OPTIONS, 8);
        let limits = Limits { may_change: false, pairs: 2 };
        self.net.control(port, &mut queue, ram, &limits, |_| {}).expect("it keeps rules");
        assert_eq!(commands.take(ram)[0].bytes, [0], "it is done");
    }

    fn step(&mut self, step: &Step, now: u64) {
        let [sends, receives] = self.simple;
        for (vm, ram) in self.vms.iter_mut().zip(&self.memories) {
            for pair in [0, 1] {
                let vm = vm.pair(pair);
                vm.simple = receives;
                vm.refill(ram, &mut self.cuts, 3);
            }
        }
        match step {
            Step::Send { from, pair, header, bytes } => {
                let readable = [&header.to_bytes()[..], bytes].concat();
                let length = readable.len() as u32;
                // A table is one descriptor, as a buffer is: there is room for as many packets.
                let readable_cuts = if sends { vec![length] } else { self.cuts.cut(length, 6) };
                let request = Request { readable, readable_cuts, writable: vec![], indirect: !sends };
                let (vm, ram) = (self.vms[*from].pair(*pair), &self.memories[*from]);
                let sent = vm.send.ask(ram, &request).is_some();
                self.seen.push(format!("{from} sends {sent}"));
            }
            Step::Pump { from, pair, most } => {
                let rest = match self.kinds[*from].is_of_several {
                    true => self.net.pump_pair(&self.memories, (*from, *pair), now, *most),
                    false => self.net.pump(&self.memories, *from, now, *most),
                };
                assert!(rest.is_ok(), "nobody breaks a rule");
                self.seen.push(format!("{from}: {rest:?}"));
                self.net.interrupt(&self.memories, |_, _| {});
                assert_eq!(self.net.broken(), None);
                self.look();
            }
            Step::Pairs(port, count) => self.command(*port, &[4, 0, *count, 0]),
            Step::Reset(port) => {
                self.net.set_device(*port, None);
                self.vms[*port] = Both::new(&self.memories[*port], &self.kinds[*port]);
                self.begin(*port);
            }
        }
    }

    /// Takes what has come, and looks at it.
    fn look(&mut self) {
        for (port, vm) in self.vms.iter_mut().enumerate() {
            for pair in [0, 1] {
                let vm = vm.pair(pair);
                let done = vm.take(&self.memories[port]);
                for (header, bytes) in vm.got.drain(..) {
                    may_have(self.kinds, port, &header, &bytes);
                    self.seen.push(format!("{port} has by {pair}: {header:?} {bytes:?}"));
                }
                self.seen.push(format!("{port} has sent {done} by {pair}"));
            }
            self.seen.push(format!("{:?}", self.net.switch().counters(port)));
        }
    }
}

/// A VM has only what it has agreed to and wants, of somebody who may send it that.
fn may_have(kinds: &[Kind], port: usize, header: &NetworkHeader, bytes: &[u8]) {
    let Kind { accepts, rules, is_choosy, .. } = kinds[port];
    let open = NetworkHeader { flags: 1, buffers: header.buffers, ..NetworkHeader::PLAIN };
    let (checksum_start, checksum_offset) = (header.checksum_start, header.checksum_offset);
    match header.gso_type {
        0 if header.flags == 0 => {
            assert_eq!(*header, NetworkHeader { buffers: header.buffers, ..NetworkHeader::PLAIN })
        }
        0 => {
            assert!(accepts.checksum[TAKES], "it takes no open checksums");
            assert_eq!(*header, NetworkHeader { checksum_start, checksum_offset, ..open });
            assert!(usize::from(checksum_start) + usize::from(checksum_offset) + 2 <= bytes.len());
        }
        gso => {
            let has_agreed = [(1, accepts.tso4), (4, accepts.tso6)]
                .iter()
                .any(|(kind, tso)| gso & 0x7f == *kind && tso[TAKES]);
            assert!(has_agreed && accepts.checksum[TAKES] && (gso & 0x80 == 0 || accepts.ecn[TAKES]));
        }
    }
    let is_of_vlan = bytes[12..14] != [0x81, 0] || bytes[15] == 5;
    assert!(
        !is_choosy || is_of_vlan && (bytes[..6] == [0xff; 6] || bytes[..6] == mac(port)),
        "it does not want it"
    );
    // Of whom it is says the IP header, if there is no tag.
    if bytes.get(14) == Some(&0x45) && bytes.len() > 30 {
        let from = usize::from(bytes[29]);
        assert_ne!(from, port, "it is its own");
        assert!(!(rules.isolated && kinds[from].rules.isolated), "both are isolated");
        assert!(kinds[from].rules.mac.is_none_or(|own| bytes[6..12] == own), "it lies about itself");
        assert!(header.flags == 0 || kinds[from].accepts.checksum[SENDS], "it has not agreed to that");
        let owner = kinds.iter().position(|kind| kind.rules.mac.is_some_and(|own| bytes[6..12] == own));
        assert!(owner.is_none_or(|owner| owner == from), "it lies about another one");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However what is sent and received lies: the same packets come to the same VMs by the same queues, with the same headers; the same is counted.
    #[test]
    fn plain_packets_and_frames_are_alike(seed in 1u64..) {
        let random = &mut Random(seed);
        let kinds: Vec<_> = (0..VMS).map(|number| kind(random, number)).collect();
        let steps: Vec<_> = (0..160).map(|number| step(random, &kinds, number)).collect();
        let mut first: Option<Vec<String>> = None;
        for simple in [[false, false], [true, false], [true, true]] {
            let mut world = World::new(&kinds, simple);
            for (step, now) in steps.iter().zip(1_u64..) {
                world.step(step, now * 20_000);
            }
            match &first {
                None => first = Some(world.seen),
                Some(first) => for (one, other) in first.iter().zip(&world.seen) {
                    prop_assert_eq!(one, other);
                },
            }
        }
    }
}
