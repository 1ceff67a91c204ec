// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that Debian's kernel reports to be free goes to another VM while both run.

use turnstile_link::{Command, StopReason};

use super::disks::is_up;
use super::scenario::{Scenario, Step, linux};

/// Those of all architectures.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = reports().on_all();
    // POWER's kernel is larger, and so are its guests here.
    let [.., power] = &mut all;
    power.config = power.config.replace("384MiB", "576MiB");
    Vec::from(all)
}

/// What a guest does: it fills memory that it has for that alone, and says how much. The answer is not in what is typed.
const FILL: &str = "mkdir -p /fill; mount -t tmpfs -o size=200m none /fill; \
                    fill() { dd if=/dev/zero bs=1M count=128 of=/fill/file 2>/dev/null; echo $1 filled $(wc -c </fill/file); }\r";

/// Two guests fill memory by turns, more than the pool has for both at once.
fn reports() -> Scenario {
    let vm = |name| linux(name, 1, "quiet", "mapping = \"from-pool\"\nballoon = true\nentropy = true");
    let config = format!("{}{}[pool]\nsize = \"384MiB\"\n", vm("first"), vm("second"));
    let fill = |vm: u8, text: &'static str, answer: &'static str| {
        [Step::Type(vm, text), Step::Expect(vm, answer), Step::Type(vm, "rm /fill/file\r")]
    };
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &[Step::Type(0, FILL), Step::Expect(0, "# "), Step::Type(1, FILL), Step::Expect(1, "# ")],
        &fill(0, "fill 1\r", "1 filled 134217728"),
        &fill(1, "fill 2\r", "2 filled 134217728"),
        // Whoever is killed goes on with the report that it had.
        &[Step::Tell(Command::KillService { service: 2 })],
        &fill(0, "fill 3\r", "3 filled 134217728"),
        &[
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
            Step::Type(1, "poweroff -f\r"),
            Step::Stopped(1, StopReason::PowerOff),
        ],
    ];
    Scenario::new("balloon/reports", config, steps.concat())
}
