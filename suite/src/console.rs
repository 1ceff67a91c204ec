// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtio consoles as Debian's kernel finds them: a shell on one, its size, and what comes and goes while the service is killed.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::disks::is_up;
use super::scenario::{Scenario, Step, linux};

/// Those of all architectures. On POWER the terminal of the machine is the first of that kind, and the virtio console the second.
pub fn scenarios() -> Vec<Scenario> {
    let of = |isa, console: &str, memory| {
        let cmdline = format!("console={console} quiet");
        let config = linux("linux", 1, &cmdline, "console = \"virtio\"").replace("256MiB", memory);
        Scenario::at(isa, "console/linux", config, steps(console)).judge(|record| {
            match record.text.contains("service console-linux was killed") {
                true => Ok(()),
                false => Err("no kill was reported".to_owned()),
            }
        })
    };
    vec![
        of(Isa::Arm64, "hvc0", "256MiB"),
        of(Isa::X86_64, "hvc0", "256MiB"),
        of(Isa::Power64, "hvc1", "512MiB"),
    ]
}

const PAUSE: Command = Command::Pause { vm: 0 };
const RESUME: Command = Command::Resume { vm: 0 };
const KILL: Step = Step::Tell(Command::KillService { service: 0 });
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

/// A shell on the console. Answers are not in what is typed.
fn steps(console: &str) -> Vec<Step> {
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
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ]);
    steps
}
