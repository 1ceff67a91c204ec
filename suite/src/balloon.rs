// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that Debian's kernel gives back to a pool while it runs.

use turnstile::isa::Isa;
use turnstile_link::{Command, Outcome, StopReason};

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
    .chain(dry().on_all())
    .chain(asked().on_all().into_iter().map(|scenario| {
        // What their kernels have at least, and leave in blocks when they are asked, differs.
        let size = match scenario.isa {
            Isa::Arm64 => "384MiB",
            Isa::X86_64 => "432MiB",
            Isa::Power64 => "464MiB",
        };
        let config = scenario.config.replace("512MiB", "320MiB");
        scenario.with_config(format!("{config}[pool]\nsize = \"{size}\"\n"))
    }))
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

/// A guest has the pool's memory as a cache of its disk, which is not free: another one that needs it waits, until the first is asked for it. The
/// service is killed then. What the first has of its memory is right, also when it has all again. Who does not run is asked for nothing.
fn asked() -> Scenario {
    const ASK: Command = Command::Balloon { vm: 0, bytes: 128 << 20 };
    const EARLIER: Command = Command::Balloon { vm: 1, bytes: 1 << 20 };
    const END: Command = Command::Balloon { vm: 0, bytes: 1 << 40 };
    let pooled = "mapping = \"from-pool\"\nballoon = true\n";
    let disk = "[[disk]]\nname = \"data\"\nsize = \"192MiB\"\n";
    let config = linux("one", 1, "quiet", &format!("{pooled}disks = [\"data\"]"))
        + &linux("two", 1, "quiet", pooled)
        + disk;
    let steps = [
        &[
            // Of its next life nobody has asked that.
            Step::Started(1, 1),
            Step::Tell(EARLIER),
            Step::Answered(EARLIER, Outcome::Accepted),
            Step::Tell(Command::Restart { vm: 1 }),
            Step::Started(1, 2),
        ][..],
        &is_up(0),
        &is_up(1),
        &[
            Step::Type(1, "grep balloon_inflate /proc/vmstat\r"),
            Step::Expect(1, "balloon_inflate 0"),
            // A disk that nobody has open has no cache.
            Step::Type(
                0,
                "exec 3</dev/vda; sum() { md5sum /dev/vda | cut -c -32; }; read=$(sum); echo $((6 * 7)) read\r",
            ),
            Step::Expect(0, "42 read"),
            Step::Type(1, FILL),
            Step::Expect(1, "# "),
            Step::Type(1, "fill second\r"),
            Step::Tell(ASK),
            Step::Answered(ASK, Outcome::Accepted),
            Step::Expect(1, "second 125829120 same"),
            Step::Tell(Command::KillService { service: 1 }),
            Step::Tell(END),
            Step::Type(0, "[ $(sum) = $read ] && echo $((6 * 7)) same\r"),
            Step::Expect(0, "42 same"),
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
            Step::Tell(ASK),
            Step::Answered(ASK, Outcome::NotNow),
            Step::Type(1, "poweroff -f\r"),
            Step::Stopped(1, StopReason::PowerOff),
        ],
    ];
    Scenario::new("balloon/asked", config, steps.concat()).limit(300)
}

/// A guest takes what the pool has left, and waits for more. Another one that has memory from there reads its disk and is called by a third, which has memory of its own: that
/// one goes on meanwhile, and the other one when there is memory again. Services find the pool empty every second time, too.
fn dry() -> Scenario {
    let pooled = "mapping = \"from-pool\"\n";
    let network = "networks = [\"lan\"]\n";
    let config = [
        linux("first", 1, "quiet", pooled),
        linux("second", 1, "quiet", &format!("{pooled}{network}disks = [\"data\"]")),
        linux("third", 1, "quiet", network),
        linux("fourth", 1, "quiet", network),
        "[pool]\nsize = \"256MiB\"\n[[disk]]\nname = \"data\"\nsize = \"64MiB\"\n[[network]]\nname = \"lan\"\n".to_owned(),
    ];
    let connect = |vm: u8, text: &'static str| {
        let [up, prompt] = is_up(vm);
        [up, prompt, Step::Type(vm, text), Step::Expect(vm, "# ")]
    };
    let [up, prompt] = is_up(0);
    let steps = [
        &[up, prompt, Step::Type(0, FILL), Step::Expect(0, "# ")][..],
        &connect(1, "ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up\r"),
        &connect(2, "ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up\r"),
        &connect(3, "ip addr add 10.0.0.3/24 dev eth0; ip link set eth0 up\r"),
        &[
            Step::Type(2, "ping -c 2 10.0.0.1\r"),
            Step::Expect(2, "2 packets received"),
            Step::Type(0, "fill first\r"),
            Step::Wait(6000),
            Step::Type(1, "dd if=/dev/vda bs=1M of=/dev/null 2>/dev/null; echo $((6 * 7)) read\r"),
            Step::Type(2, "ping -c 4 -W 2 10.0.0.1; ping -c 4 10.0.0.3\r"),
            Step::Expect(2, "4 packets received"),
            Step::Tell(Command::Stop { vm: 0 }),
            Step::Stopped(0, StopReason::Killed),
            Step::Expect(1, "42 read"),
            Step::Type(2, "ping -c 2 10.0.0.1\r"),
            Step::Expect(2, "2 packets received"),
            Step::Tell(Command::Stop { vm: 1 }),
            Step::Tell(Command::Stop { vm: 2 }),
            Step::Tell(Command::Stop { vm: 3 }),
        ],
    ];
    Scenario::new("balloon/dry", config.concat(), steps.concat()).limit(300).prepare(|boot, _| {
        boot.append.push_str(" provoke=dry");
        Ok(())
    })
}
