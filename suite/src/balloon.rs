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
    all.into_iter().chain(dry().on_all()).collect()
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

/// A guest takes what the pool has left, and waits for more. Another one that has memory from there reads its disk and is called by a third, which has memory of its own: that
/// one goes on meanwhile, and the other one when there is memory again.
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
            Step::Type(0, "fill 1\r"),
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
    Scenario::new("balloon/dry", config.concat(), steps.concat()).limit(300)
}
