// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entropy devices as Debian's kernel finds them, and machines that have no generator for them.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::disks::is_up;
use super::scenario::{Ending, Scenario, Step, guest, linux};

/// Those of all architectures. Each CPU with POWER has a generator.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::from(found().on_all());
    scenarios.extend([no_generator(Isa::Arm64), no_generator(Isa::X86_64)]);
    scenarios
}

/// What the guest does: two reads, which are no text and differ. The answer is not in what is typed.
pub const LOOK: &str = "look() { for n in 1 2; do head -c 4096 /dev/hwrng >/tmp/$n; done; \
                    cmp -s /tmp/1 /tmp/2 && d=same || d=other; [ $(gzip -c /tmp/1 | wc -c) -gt 4000 ] && k=random || k=text; \
                    echo $1 $(cat /sys/class/misc/hw_random/rng_current) $(cat /tmp/1 /tmp/2 | wc -c) $d $k; }\r";

/// The guest reads, also when the service was killed.
fn found() -> Scenario {
    let config = linux("linux", 1, "quiet", "entropy = true");
    let steps = [
        &is_up(0)[..],
        &[
            Step::Type(0, LOOK),
            Step::Expect(0, "# "),
            Step::Type(0, "look first\r"),
            Step::Expect(0, "first virtio_rng.0 8192 other random"),
            Step::Tell(Command::KillService { service: 0 }),
            Step::Type(0, "look again\r"),
            Step::Expect(0, "again virtio_rng.0 8192 other random"),
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
        ],
    ];
    Scenario::new("entropy/linux", config, steps.concat()).judge(|record| {
        match record.text.contains("service entropy-linux was killed") {
            true => Ok(()),
            false => Err("no kill was reported".to_owned()),
        }
    })
}

/// A CPU without a generator.
fn no_generator(isa: Isa) -> Scenario {
    let config = guest("vm", "echo", "16MiB", "entropy = true");
    let text = "service entropy-vm cannot be built: the CPU has no generator of random numbers that works: \
                take `entropy` out of its VM";
    let scenario = Scenario::at(isa, "refusal/no-random", config, vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).limit(60).prepare(match isa {
        Isa::Arm64 => |boot, _| {
            boot.cpu = "cortex-a57".to_owned();
            Ok(())
        },
        _ => |boot, _| {
            boot.cpu = "max,rdrand=off".to_owned();
            Ok(())
        },
    })
}
