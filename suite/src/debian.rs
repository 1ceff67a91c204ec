// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernels, unmodified, on each architecture: from the kernel to a shell, what is done there, and off again.

use turnstile::isa::Isa;
use turnstile_link::StopReason;

use super::scenario::{Ending, Record, Scenario, Step, linux};

const READY: &str = "turnstile: shell ready";
/// What a shell says of its kernel. What is echoed is not what is expected.
pub const VERSION: [Step; 2] =
    [Step::Type(0, "cat /proc/version | tr a-z A-Z\r"), Step::Expect(0, "LINUX VERSION")];
/// Has a kernel that panics reset its machine in a way that the hypervisor reports.
pub const RESETTING: &str = " panic=-1 reboot=panic_warm";
/// What the hypervisor reports then.
pub const RESET: [Step; 2] = [Step::Reported("warm reset"), Step::Stopped(0, StopReason::Crash)];

/// The Linux VMs of an architecture.
pub struct Vms {
    /// The architecture.
    pub isa: Isa,
    /// What their kernels have to be told of their console, with a space behind it.
    pub console: &'static str,
    /// Their memory.
    pub memory: &'static str,
    /// Processor time for one with several vCPUs, in seconds.
    pub limit: u64,
}

/// A test of the initrd.
#[derive(Clone, Copy)]
pub enum Test {
    /// CPUs go and come.
    Hotplug,
    /// Timers expire on time.
    Timer,
    /// Interrupts between all CPUs.
    IpiStress,
    /// Memory holds what is written.
    Memory,
    /// Floating-point registers keep what is in them.
    Fp,
}

impl Test {
    /// Its name on the command line.
    const fn name(self) -> &'static str {
        match self {
            Test::Hotplug => "hotplug",
            Test::Timer => "timer",
            Test::IpiStress => "ipi-stress",
            Test::Memory => "memory",
            Test::Fp => "fp",
        }
    }

    /// It passes.
    const fn passes(self, vm: u8) -> Step {
        let text = match self {
            Test::Hotplug => "turnstile: hotplug ok",
            Test::Timer => "turnstile: timer ok",
            Test::IpiStress => "turnstile: ipi-stress ok",
            Test::Memory => "turnstile: memory ok",
            Test::Fp => "turnstile: fp ok",
        };
        Step::Expect(vm, text)
    }
}

/// A command line that has these tests made.
fn making(tests: &[Test]) -> String {
    let names: Vec<&str> = tests.iter().map(|test| test.name()).collect();
    format!("quiet turnstile.run={},poweroff", names.join(","))
}

impl Vms {
    /// The configuration of one.
    fn vm(&self, name: &str, vcpus: u32, cmdline: &str, more: &str) -> String {
        let cmdline = format!("{}{cmdline}", self.console);
        linux(name, vcpus, &cmdline, more).replace("256MiB", self.memory)
    }

    fn scenario(&self, name: &str, config: String, steps: Vec<Step>) -> Scenario {
        Scenario::at(self.isa, format!("linux/{name}"), config, steps).limit(self.limit).judge(quiet_kernel)
    }

    /// From the kernel to a shell, and off again, on a machine with these lines and in a VM with these.
    pub fn boot(&self, which: &str, vcpus: u32, kernel: &str, machine: &str, more: &str) -> Scenario {
        let vm = self.vm("linux", vcpus, "turnstile.run=info,poweroff", more);
        let config = machine.to_owned() + &vm.replace("debian:linux\"", &format!("debian:{kernel}\""));
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
        self.scenario(&format!("boot-{which}-{vcpus}"), config, steps)
    }

    /// A shell does what is typed; these further steps are at its end.
    pub fn typing(&self, name: &str, more: &str, further: &[Step]) -> Scenario {
        let mut steps = vec![
            Step::Expect(0, READY),
            Step::Expect(0, "# "),
            // What is echoed is not what is expected.
            Step::Type(0, "echo sum-$((6*7))\r"),
            Step::Expect(0, "sum-42"),
        ];
        steps.extend_from_slice(further);
        steps.extend([Step::Type(0, "poweroff -f\r"), Step::Stopped(0, StopReason::PowerOff)]);
        self.scenario(name, self.vm("linux", 1, "quiet", more), steps)
    }

    /// What a kernel does with four CPUs in these tests of the initrd.
    pub fn checks(&self, name: &str, tests: &[Test]) -> Scenario {
        let config = self.vm("linux", 4, &making(tests), "");
        let mut steps = vec![Step::Expect(0, READY)];
        steps.extend(tests.iter().map(|test| test.passes(0)));
        steps.push(Step::Stopped(0, StopReason::PowerOff));
        self.scenario(name, config, steps)
    }

    /// Reboots and powers off, beside another, which has these lines.
    pub fn reboot(&self, other: &str) -> Scenario {
        let config = self.vm("one", 2, "quiet", "") + &self.vm("two", 1, "quiet", other);
        let steps = vec![
            Step::Expect(0, READY),
            Step::Expect(1, READY),
            Step::Expect(0, "# "),
            Step::Type(0, "reboot -f\r"),
            Step::Stopped(0, StopReason::Reset),
            Step::Started(0, 2),
            Step::Expect(0, READY),
            Step::Expect(1, "# "),
            Step::Type(1, "echo alive-$((1+1))\r"),
            Step::Expect(1, "alive-2"),
            Step::Type(1, "poweroff -f\r"),
            Step::Stopped(1, StopReason::PowerOff),
            Step::Expect(0, "# "),
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
        ];
        self.scenario("reboot-and-poweroff", config, steps)
    }

    /// Two VMs at once, with these lines each, make these tests of the initrd.
    pub fn two(&self, name: &str, tests: &[Test], more: [&str; 2]) -> Scenario {
        let cmdline = making(tests);
        let config = self.vm("one", 2, &cmdline, more[0]) + &self.vm("two", 2, &cmdline, more[1]);
        let mut steps = Vec::new();
        for vm in [0, 1] {
            steps.push(Step::Expect(vm, READY));
            steps.extend(tests.iter().map(|test| test.passes(vm)));
        }
        self.scenario(name, config, steps).limit(2 * self.limit)
    }

    /// A kernel with these arguments panics, as these steps say, and its VM is started again; the other VM works on.
    pub fn crash_beside(&self, arguments: &str, reported: &[Step]) -> Scenario {
        let config = self.vm("one", 1, &format!("quiet{arguments}"), "on-crash = \"restart\"")
            + &self.vm("two", 1, "quiet", "");
        let mut steps = vec![
            Step::Expect(0, READY),
            Step::Expect(1, READY),
            Step::Expect(0, "# "),
            Step::Expect(1, "# "),
            Step::Type(0, "echo c >/proc/sysrq-trigger\r"),
            Step::Expect(0, "Kernel panic"),
        ];
        steps.extend_from_slice(reported);
        steps.extend([
            Step::Started(0, 2),
            Step::Type(1, "echo alive-$((1+1))\r"),
            Step::Expect(1, "alive-2"),
            Step::Expect(0, READY),
            Step::Type(1, "poweroff -f\r"),
            Step::Stopped(1, StopReason::PowerOff),
        ]);
        let scenario = Scenario::at(self.isa, "linux/crash-beside-another", config, steps);
        scenario.limit(self.limit).ending(Ending::Poweroff)
    }
}

/// The kernel had nothing to complain about.
pub fn quiet_kernel(record: &Record) -> Result<(), String> {
    let signs =
        ["Kernel panic", "BUG:", "Oops", "WARNING: CPU", "rcu: INFO", "soft lockup", "irq: nobody cared"];
    let lines = record.consoles.iter().flat_map(|console| console.lines());
    match lines.into_iter().find(|line| signs.iter().any(|sign| line.contains(sign))) {
        Some(line) => Err(format!("the kernel says: {}", line.trim())),
        None => Ok(()),
    }
}

/// The same, and the VM beside the one that reboots did not.
pub fn other_stays(record: &Record) -> Result<(), String> {
    match record.starts.iter().filter(|start| start.vm == 1).count() {
        1 => quiet_kernel(record),
        starts => Err(format!("the other VM started {starts} times")),
    }
}
