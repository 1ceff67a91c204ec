// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks of Linux KVM: two guests, each with QEMU's virtio-net device over vhost-net and a tap of the host, and a bridge between the
//! taps. Their programs send each other the packets of a row.
//!
//! The CPUs of the emulated host run in turn, for as long as the emulator lets them: up to a millisecond, in which packets pile up. A
//! timer of the emulator that the machine cannot see ends each turn earlier.

use std::ffi::OsString;

use super::Run;
use super::plan::{Guest, Plan, debian};
use crate::bench::rows::Row;
use crate::failure::{Context, Result};
use crate::setup::peers::Peer;

/// How long a turn of a CPU takes at most, in microseconds, if nobody says it.
pub const TURN: u64 = 20;
/// How many packets `packet-batch` sends at once.
const WINDOW: u64 = 64;
/// How many times fewer operations are measured that take a while.
const LONG: u64 = 4;
/// The least operations: fewer would not show beside the host's clock.
const LEAST: u64 = 256;
/// A kind of work.
const SLEEPING: &str = "packet-sleeping";
/// The same work without its packets.
const SILENCE: &str = "silence";
/// What is in front of the kind for the guest that answers.
const ANSWER: &str = "answer-";
/// How many bytes the longest kind has.
const WIDTH: usize = ANSWER.len() + SLEEPING.len();
/// The host's shell script that QEMU runs for each tap, with its name, and the shell.
const JOIN: &str = "join";
const SHELL: &str = "busybox";
/// It puts the tap on the bridge, which the first one makes.
const SCRIPT: &str = "#!/bin/busybox sh
set -e
[ -e /sys/class/net/lan ] || /bin/busybox brctl addbr lan
/bin/busybox ip link set lan up
/bin/busybox ip link set \"$1\" up
/bin/busybox brctl addif lan \"$1\"
";

/// Whether it is a row of packets between two VMs with CPUs of their own, by one pair of queues: a tap has one.
pub fn has(row: &Row) -> bool {
    row.peer && row.shared.is_none() && !row.pairs && !row.wired
}

/// Two guests on a network. The second boot does twice as much; of packets after a silence, it sends them, and the first one is silent.
pub fn plan(run: &Run<'_>, host: &Peer) -> Result<Plan> {
    let operations = operations(run.row, run.iterations);
    let shell = debian(run.layout, run.row.isa)?.kernel.with_file_name(SHELL);
    let shell = std::fs::read(&shell).context(|| format!("cannot read {}", shell.display()))?;
    Ok(Plan {
        cpus: 4,
        modules: host.networks().into(),
        programs: vec![(SHELL, shell), (JOIN, SCRIPT.into())],
        guests: [0, 1].map(|guest| self::guest(run.row, guest, operations)).into(),
        emulator: emulator(run.variant.turn.unwrap_or(TURN)),
        operations,
    })
}

/// How many operations are measured: fewer of those that are many packets, or take a while.
pub fn operations(row: &Row, usual: u64) -> u64 {
    let fewer = match row.options {
        options if options.contains("packets=") => WINDOW,
        options if options.contains("silence=") || options.contains("segments") => LONG,
        _ => 1,
    };
    (row.iterations(usual) / fewer).max(LEAST)
}

/// One of the guests: the first one begins, and the other one answers, and has no console, as their lines would mix.
fn guest(row: &Row, guest: usize, operations: u64) -> Guest {
    let host = guest + 1;
    let netdev = format!("tap,id=lan,ifname=tap{guest},script=/bin/{JOIN},downscript=no,vhost=on");
    let device = format!("virtio-net-pci,netdev=lan,mac=52:54:00:00:00:{host:02x},romfile=");
    Guest {
        append: address(guest),
        serial: if guest == 0 { "stdio" } else { "null" },
        device: ["-netdev", &netdev, "-device", &device].map(str::to_owned).into(),
        told: told(row, guest, operations),
    }
}

/// What the kernel of a guest is told of its address.
pub fn address(guest: usize) -> String {
    format!("turnstile.ip=10.0.0.{}/24", guest + 1)
}

/// What the program of a guest is told in both boots, in as many bytes whatever it is.
pub fn told(row: &Row, guest: usize, operations: u64) -> [String; 2] {
    let side = if guest == 0 { "" } else { ANSWER };
    let told = |kind: &str, count: u64| format!("{:WIDTH$} {count:010}\n", format!("{side}{kind}"));
    match row.name {
        SLEEPING => [told(SILENCE, operations), told(SLEEPING, operations)],
        name => [told(name, operations), told(name, 2 * operations)],
    }
}

/// What the emulator is told, for turns of so many microseconds: a network that the machine has not, with a filter that looks at it so
/// often. Without a number CPUs run as long as the emulator lets them.
pub fn emulator(turn: u64) -> Vec<OsString> {
    if turn == 0 {
        return Vec::new();
    }
    let filter = format!("filter-buffer,id=turns,netdev=none,interval={turn}");
    ["-netdev", "hubport,id=none,hubid=0", "-object", &filter].map(OsString::from).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;
    use crate::isa::Isa;

    fn row(name: &str) -> &'static Row {
        rows::select(Isa::Arm64, &[name.to_owned()]).unwrap()[0]
    }

    #[test]
    fn two_boots_are_told_as_much() {
        for name in ["packet", "packet-batch", SLEEPING, "segment"] {
            let [less, more] = told(row(name), 1, 256);
            assert!(less.len() == more.len() && less.starts_with(ANSWER) && less != more, "{less}{more}");
        }
        assert_eq!(
            told(row("packet"), 0, 256)[1].split_whitespace().collect::<Vec<_>>(),
            ["packet", "0000000512"]
        );
        let [silent, not] = told(row(SLEEPING), 0, 256);
        assert!(silent.starts_with("silence ") && not.ends_with(" 0000000256\n"), "{silent}{not}");
    }

    #[test]
    fn a_batch_is_measured_less_often() {
        let all = ["packet", SLEEPING, "packet-batch"].map(|name| operations(row(name), 65536));
        assert_eq!(all, [4096, 1024, 256]);
    }

    #[test]
    fn guests_are_two_on_one_network() {
        let [first, second] = [0, 1].map(|at| guest(row("packet"), at, 256));
        assert_eq!(
            [&*first.append, &*second.append],
            ["turnstile.ip=10.0.0.1/24", "turnstile.ip=10.0.0.2/24"]
        );
        assert_eq!([first.serial, second.serial], ["stdio", "null"]);
        assert!(first.device[1].contains("ifname=tap0,") && second.device[1].contains("vhost=on"));
        assert_ne!(first.device[3], second.device[3], "each has an address of its own");
    }

    #[test]
    fn turns_are_a_timer_of_the_emulator() {
        assert!(emulator(0).is_empty());
        assert_eq!(emulator(20)[3], "filter-buffer,id=turns,netdev=none,interval=20");
    }
}
