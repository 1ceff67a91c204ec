// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtio consoles as Debian's kernel finds them: a shell on one, its size, named ports beside it, and what comes and goes while the
//! services are killed.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::disks::is_up;
use super::scenario::{Scenario, Step, linux, stream};

/// Those of all architectures. On POWER the terminal of the machine is the first of that kind, and the virtio console the second.
pub fn scenarios() -> Vec<Scenario> {
    let of = |isa, console: &str, memory, bytes| {
        let cmdline = format!("console={console} quiet");
        let more = "console = \"virtio\"\nports = [\"log\", \"agent\"]";
        let config = linux("linux", 1, &cmdline, more).replace("256MiB", memory);
        Scenario::at(isa, "console/linux", config, steps(console, bytes)).judge(|record| {
            let is_killed = |name: &str| record.text.contains(&format!("service {name} was killed"));
            match is_killed("console-linux") && is_killed("ports-linux") {
                true => Ok(()),
                false => Err("no kill was reported".to_owned()),
            }
        })
    };
    vec![
        of(Isa::Arm64, "hvc0", "256MiB", 100_000),
        of(Isa::X86_64, "hvc0", "256MiB", 100_000),
        // Its emulated line takes a second for 1.4 KB.
        of(Isa::Power64, "hvc1", "512MiB", 4000),
    ]
}

const PAUSE: Command = Command::Pause { vm: 0 };
const RESUME: Command = Command::Resume { vm: 0 };
const KILL: Step = Step::Tell(Command::KillService { service: 0 });
const KILL_PORTS: Step = Step::Tell(Command::KillService { service: 1 });
/// The port `agent`.
const AGENT: u8 = 2;
/// What is typed while the service is killed after each line, and its checksum.
const TYPED: [&str; 8] = [
    "0: the quick brown fox jumps over the lazy dog\r",
    "1: the quick brown fox jumps over the lazy dog\r",
    "2: the quick brown fox jumps over the lazy dog\r",
    "3: the quick brown fox jumps over the lazy dog\r",
    "4: the quick brown fox jumps over the lazy dog\r",
    "5: the quick brown fox jumps over the lazy dog\r",
    "6: the quick brown fox jumps over the lazy dog\r",
    "7: the quick brown fox jumps over the lazy dog\r",
];
const CHECKSUM: &str = "785afdad59db3a961ca7238646bed4a3  -";

/// What a program of the guest does with a port: so many bytes of both sides, while the service is killed.
fn port_steps(bytes: usize) -> Vec<Step> {
    let text = |text: String| -> &'static str { text.leak() };
    let kills = || (0..6).flat_map(|_| [KILL_PORTS, Step::Wait(60)]);
    let sum = stream(bytes).fold(0u64, |sum, byte| sum + u64::from(byte));
    let mut steps = vec![
        Step::Type(0, "p=/dev/$(cd /sys/class/virtio-ports; grep -lx agent */name | cut -d/ -f1)\r"),
        // Nobody is there: what is read has ended.
        Step::Type(0, "cat $p; echo clos'ed'\r"),
        Step::Expect(0, "closed\r\n"),
        // Who writes waits until somebody comes.
        Step::Type(0, "head -c 1 /dev/zero >$p; echo op'en'\r"),
        Step::PortComes(0, AGENT),
        Step::Expect(0, "open\r\n"),
        Step::PortSays(0, AGENT, 1),
        Step::PortSends(0, AGENT, bytes),
        Step::Type(0, text(format!("head -c {bytes} $p >/tmp/got; echo g'ot'\r"))),
    ];
    steps.extend(kills());
    let count =
        "od -An -v -tu1 /tmp/got | awk '{ for (i = 1; i <= NF; i++) s += $i } END { print \"sum\", s }'\r";
    steps.extend([
        Step::Expect(0, "got\r\n"),
        Step::Type(0, count),
        Step::Expect(0, text(format!("sum {sum}\r\n"))),
        // Nobody reads: it waits, and nothing else does.
        Step::Type(0, "tail -c +2 /tmp/got >$p &\r"),
        Step::Wait(200),
        Step::Type(0, "echo still' here'\r"),
        Step::Expect(0, "still here\r\n"),
    ]);
    steps.extend(kills());
    steps.extend([
        Step::PortSays(0, AGENT, bytes),
        Step::Type(0, "wait; cat $p; echo go'ne'\r"),
        Step::Wait(200),
        Step::PortGoes(0, AGENT),
        Step::Expect(0, "gone\r\n"),
    ]);
    steps
}

/// A shell on the console. Answers are not in what is typed.
fn steps(console: &str, bytes: usize) -> Vec<Step> {
    let text = |text: String| -> &'static str { text.leak() };
    let printed: Vec<String> = (2000..3000).map(|number| number.to_string()).collect();
    let on = text(format!("on /dev/{console}\r\n"));
    let mut steps = Vec::from(is_up(0));
    steps.extend([
        Step::Type(0, "echo on $(tty)\r"),
        Step::Expect(0, on),
        Step::Resize(0, 132, 50),
        Step::Type(0, "until [ \"$(stty size)\" = '50 132' ]; do usleep 10000; done; echo la'rge'\r"),
        Step::Expect(0, "large\r\n"),
        // Nobody types behind the pause.
        Step::Type(0, "until [ \"$(stty size)\" = '40 100' ]; do usleep 10000; done; echo sma'ller'\r"),
        Step::Expect(0, "sma'ller'\r\n"),
        Step::Tell(PAUSE),
        Step::Paused(0),
        Step::Resize(0, 100, 40),
        Step::Wait(200),
        Step::Tell(RESUME),
        Step::Resumed(0),
        Step::Expect(0, "smaller\r\n"),
        Step::Type(0, "stty -echo; echo re'ady'; head -n 8 | md5sum; stty echo\r"),
        Step::Expect(0, "ready\r\n"),
    ]);
    steps.extend(TYPED.iter().flat_map(|line| [Step::Type(0, line), KILL]));
    steps.extend([Step::Expect(0, CHECKSUM), Step::Expect(0, "# "), Step::Type(0, "seq -s , 2000 2999\r")]);
    steps.extend([KILL; 5]);
    steps.extend([
        // Each once, and in their order.
        Step::Expect(0, text(printed.join(","))),
        Step::Expect(0, "# "),
        Step::Type(0, "stty size\r"),
        Step::Expect(0, "40 100\r\n"),
    ]);
    steps.extend(port_steps(bytes));
    steps.extend([Step::Type(0, "poweroff -f\r"), Step::Stopped(0, StopReason::PowerOff)]);
    steps
}
