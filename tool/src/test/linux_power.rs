// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernels for POWER, unmodified: with pages of 64 KiB and of 4 KiB, on XIVE and XICS.

use turnstile_link::StopReason;

use super::linux::quiet_kernel;
use super::scenario::{Ending, Scenario, Step, linux};

const READY: &str = "turnstile: shell ready";
/// Processor time for a Linux with several vCPUs, in seconds.
const LIMIT: u64 = 400;
/// A partition's kernel finds its terminal by itself; this makes it the one that it writes to.
const CONSOLE: &str = "console=hvc0";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for interrupts in ["xive", "xics"] {
        for vcpus in [1, 4] {
            scenarios.push(boot(vcpus, interrupts, "linux", ""));
        }
    }
    scenarios.extend([
        boot(2, "xive", "linux-4k", ""),
        boot(1, "xive", "linux", "powernv10"),
        boot(4, "xics", "linux", "powernv10"),
        typing(),
        checks(),
        reboot(),
        two(),
        shared(),
        crash_beside(),
    ]);
    scenarios
}

/// A VM whose images are larger than those of other architectures.
fn vm(name: &str, vcpus: u32, cmdline: &str, more: &str) -> String {
    linux(name, vcpus, cmdline, more).replace("256MiB", "512MiB")
}

/// From the kernel to a shell, and off again by the firmware.
fn boot(vcpus: u32, interrupts: &str, kernel: &str, board: &str) -> Scenario {
    let cmdline = format!("{CONSOLE} turnstile.run=info,poweroff");
    let config = vm("linux", vcpus, &cmdline, &format!("interrupts = \"{interrupts}\""))
        .replace("debian:linux\"", &format!("debian:{kernel}\""));
    let (config, place) = match board {
        "" => (config, String::new()),
        board => (format!("[machine]\nboard = \"{board}\"\n{config}"), format!("{board}-")),
    };
    let ready = match vcpus {
        1 => "turnstile: shell ready cpus=1",
        2 => "turnstile: shell ready cpus=2",
        _ => "turnstile: shell ready cpus=4",
    };
    let steps = vec![
        Step::Expect(0, ready),
        Step::Expect(0, "turnstile: info ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    let name = format!("linux/boot-{place}{kernel}-{interrupts}-{vcpus}");
    Scenario::power(name, config, steps).limit(LIMIT).judge(quiet_kernel)
}

fn typing() -> Scenario {
    let config = vm("linux", 1, &format!("{CONSOLE} quiet"), "");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(0, "# "),
        // What is echoed is not what is expected.
        Step::Type(0, "echo sum-$((6*7))\r"),
        Step::Expect(0, "sum-42"),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::power("linux/typing", config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// What a kernel does with CPUs, IPIs, memory and floating-point registers.
fn checks() -> Scenario {
    let cmdline = format!("{CONSOLE} quiet turnstile.run=hotplug,ipi-stress,memory,fp,poweroff");
    let config = vm("linux", 4, &cmdline, "");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(0, "turnstile: hotplug ok"),
        Step::Expect(0, "turnstile: ipi-stress ok"),
        Step::Expect(0, "turnstile: memory ok"),
        Step::Expect(0, "turnstile: fp ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::power("linux/hotplug-ipi-memory", config, steps).limit(2 * LIMIT).judge(quiet_kernel)
}

/// Reboots and powers off, beside another.
fn reboot() -> Scenario {
    let cmdline = format!("{CONSOLE} quiet");
    let config = vm("one", 2, &cmdline, "") + &vm("two", 1, &cmdline, "interrupts = \"xics\"");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(1, READY),
        Step::Expect(0, "# "),
        Step::Type(0, "reboot -f\r"),
        Step::Stopped(0, StopReason::Reset),
        Step::Started(0, 2),
        Step::Expect(0, READY),
        Step::Expect(1, "# "),
        Step::Type(1, "echo alive-$((1+1)); poweroff -f\r"),
        Step::Expect(1, "alive-2"),
        Step::Stopped(1, StopReason::PowerOff),
        Step::Expect(0, "# "),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::power("linux/reboot-and-poweroff", config, steps).limit(2 * LIMIT).judge(quiet_kernel)
}

/// Two VMs at once.
fn two() -> Scenario {
    let checks = format!("{CONSOLE} quiet turnstile.run=ipi-stress,poweroff");
    let config = vm("one", 2, &checks, "") + &vm("two", 2, &checks, "interrupts = \"xics\"");
    let steps =
        [0, 1].iter().flat_map(|&vm| [Step::Expect(vm, READY), Step::Expect(vm, "turnstile: ipi-stress ok")]);
    Scenario::power("linux/two-at-once", config, steps.collect()).limit(2 * LIMIT).judge(quiet_kernel)
}

/// Two VMs whose vCPUs take turns on two CPUs.
fn shared() -> Scenario {
    let checks = format!("{CONSOLE} quiet turnstile.run=fp,poweroff");
    let more = "cpus = [0, 1]\nschedule = \"shared\"";
    let config = vm("one", 2, &checks, more) + &vm("two", 2, &checks, more);
    let steps = [0, 1].iter().flat_map(|&vm| [Step::Expect(vm, READY), Step::Expect(vm, "turnstile: fp ok")]);
    Scenario::power("linux/sharing", config, steps.collect()).limit(2 * LIMIT).judge(quiet_kernel)
}

/// A kernel panics and its VM is started again; the other VM works on.
fn crash_beside() -> Scenario {
    let cmdline = format!("{CONSOLE} quiet");
    let config = vm("one", 1, &cmdline, "on-crash = \"restart\"") + &vm("two", 1, &cmdline, "");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(1, READY),
        Step::Expect(0, "# "),
        Step::Expect(1, "# "),
        Step::Type(0, "echo c >/proc/sysrq-trigger\r"),
        Step::Expect(0, "Kernel panic"),
        Step::Started(0, 2),
        Step::Type(1, "echo alive-$((1+1))\r"),
        Step::Expect(1, "alive-2"),
        Step::Expect(0, READY),
        Step::Type(1, "poweroff -f\r"),
        Step::Stopped(1, StopReason::PowerOff),
    ];
    Scenario::power("linux/crash-beside-another", config, steps).limit(2 * LIMIT).ending(Ending::Poweroff)
}
