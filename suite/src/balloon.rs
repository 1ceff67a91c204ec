// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that Debian's kernel gives back to a pool while it runs.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::disks::is_up;
use super::scenario::{Scenario, Step, linux};

/// Those of all architectures.
pub fn scenarios() -> Vec<Scenario> {
    let all = reports().on_all().into_iter();
    all.map(|scenario| {
        // POWER's kernel has about 30 MiB more that it never gives back.
        let size = if scenario.isa == Isa::Power64 { "384MiB" } else { "320MiB" };
        let config = scenario.config.replace("512MiB", size);
        scenario.with_config(format!("{config}[pool]\nsize = \"{size}\"\n"))
    })
    .collect()
}

/// What the guests do: 8 MiB that stay, and 15 times as much that is there for a while. The answer is not in what is typed.
const FILL: &str = "mount -o remount,size=90% /tmp; dd if=/dev/urandom of=/tmp/keep bs=1M count=8 2>/tmp/out; \
                    sum() { tail -c 8388608 $1 | md5sum; }; kept=$(sum /tmp/keep); \
                    fill() { for n in $(seq 15); do cat /tmp/keep; done >/tmp/fill; \
                    [ \"$(sum /tmp/keep)$(sum /tmp/fill)\" = \"$kept$kept\" ] && s=same || s=other; \
                    echo $1 $(stat -c %s /tmp/fill) $s; rm /tmp/fill; }\r";

/// Two guests fill memory in turn, for which the pool has room once only: who is next waits for what the other one's kernel reports as free. One
/// service is killed. Nothing that is in use goes.
fn reports() -> Scenario {
    let more = "mapping = \"from-pool\"\nballoon = true\nentropy = true";
    let config = linux("one", 2, "quiet", more) + &linux("two", 1, "quiet", more);
    let told = |vm| [Step::Type(vm, FILL), Step::Expect(vm, "# ")];
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &told(0),
        &told(1),
        &[
            Step::Type(0, "fill first\r"),
            Step::Expect(0, "first 125829120 same"),
            Step::Tell(Command::KillService { service: 2 }),
            Step::Type(1, "fill second\r"),
            Step::Expect(1, "second 125829120 same"),
            Step::Type(0, "fill third\r"),
            Step::Expect(0, "third 125829120 same"),
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
            Step::Type(1, "poweroff -f\r"),
            Step::Stopped(1, StopReason::PowerOff),
        ],
    ];
    Scenario::new("balloon/reports", config, steps.concat()).limit(300).judge(|record| {
        match record.text.contains("service balloon-one was killed") {
            true => Ok(()),
            false => Err("no kill was reported".to_owned()),
        }
    })
}
