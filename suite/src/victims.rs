// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of a guest that crashes, spins or resets itself, on each architecture; the VM beside it must not notice.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::scenario::{Ending, Judge, Record, Scenario, Step, guest};

/// Restarts of the long run's restart test, and of the usual one.
const MANY: u32 = 1000;
const SOME: u32 = 100;

/// What the scenarios need to know of an architecture.
pub struct Victims {
    /// The architecture.
    pub isa: Isa,
    /// The memory of the guest that crashes.
    pub memory: &'static str,
    /// The memory of the guest beside it.
    pub beside: &'static str,
    /// The memory of the guest that resets itself.
    pub resetting: &'static str,
    /// How the guest crashes, in its own word.
    pub crash: &'static str,
    /// What the configuration says to make a crash of that.
    pub counts: &'static str,
    /// What the report of that says, if the guest does not tell the hypervisor itself.
    pub report: Option<&'static str>,
    /// The beacons beside a VM that is started again and again.
    pub beacons: &'static str,
}

impl Victims {
    /// The victim, beside beacons with these options.
    fn config(&self, victim: &str, beacons: &str) -> String {
        guest("victim", "crash", self.memory, victim) + &beacon(self.beside, beacons)
    }

    /// A guest that crashes stays down.
    pub fn stop(&self) -> Scenario {
        let Self { crash, counts, .. } = self;
        let victim = format!("on-crash = \"stop\"\n{counts}\ncmdline = \"how={crash} after=100\"");
        let mut steps = vec![Step::Expect(0, "@boot crash")];
        steps.extend(self.report.map(Step::Reported));
        steps.extend([Step::Stopped(0, StopReason::Crash), Step::Expect(1, "@done beacons=")]);
        let config = self.config(&victim, "count=30 limit=5000");
        let scenario = Scenario::at(self.isa, "crash/stop", config, steps);
        scenario.counted().ending(Ending::Done { crashed: 1 }).judge(beacons_are_good)
    }

    /// A guest that crashes is started again and again.
    pub fn start_again(&self) -> Scenario {
        let Self { crash, counts, .. } = self;
        let victim = format!("on-crash = \"restart\"\n{counts}\ncmdline = \"how={crash} after=100\"");
        let steps = vec![
            Step::Started(0, 3),
            Step::Expect(0, "@boot crash"),
            Step::Expect(0, "@boot crash"),
            Step::Expect(0, "@boot crash"),
            // Its last line is out when it has powered off; the end of the test would cut it.
            Step::Stopped(1, StopReason::PowerOff),
        ];
        let scenario = Scenario::at(self.isa, "crash/restart", self.config(&victim, self.beacons), steps);
        scenario.counted().ending(Ending::Poweroff).judge(beacons_are_good)
    }

    /// A guest that never gives its CPU back is stopped and restarted by command all the same.
    pub fn spin(&self) -> Scenario {
        let config = self.config("cmdline = \"how=spin\"", "count=20 limit=250000");
        let steps = vec![
            Step::Expect(0, "@boot crash"),
            Step::Tell(Command::Restart { vm: 0 }),
            Step::Started(0, 2),
            Step::Expect(0, "@boot crash"),
            Step::Tell(Command::Stop { vm: 0 }),
            Step::Stopped(0, StopReason::Killed),
            Step::Expect(1, "@done beacons="),
        ];
        Scenario::at(self.isa, "crash/spin", config, steps).counted().judge(beacons_are_good)
    }

    /// A guest that resets itself again and again finds its memory cleared, and the hypervisor loses none: some times, and in
    /// the long run many times.
    pub fn resets(&self) -> [Scenario; 2] {
        let times = |times: u32, judge: Judge| {
            let config = guest("restart", "restart", self.resetting, "");
            let steps = vec![
                Step::Started(0, times + 1),
                Step::Tell(Command::Stop { vm: 0 }),
                Step::Stopped(0, StopReason::Killed),
            ];
            Scenario::at(self.isa, format!("restart/{times}-times"), config, steps).limit(600).judge(judge)
        };
        let some = times(SOME, |record| nothing_is_lost(record, SOME));
        [some, times(MANY, |record| nothing_is_lost(record, MANY)).long()]
    }
}

/// The same memory is free after all restarts, and each found its own cleared.
fn nothing_is_lost(record: &Record, restarts: u32) -> Result<(), String> {
    let counters = |boots| {
        let start = record.starts.iter().find(|start| start.boots == boots)?;
        Some((start.free_memory, start.free_tables))
    };
    // The first start may still build what later ones find.
    let (before, after) = (counters(2), counters(restarts + 1));
    if before.is_none() || before != after {
        return Err(format!("free memory and tables were {before:?}, and {after:?} at the end"));
    }
    let checks = record.console(0).matches("@boot restart zero=yes").count();
    match checks >= restarts as usize {
        true => Ok(()),
        false => Err(format!("only {checks} starts found their memory zeroed")),
    }
}

/// The configuration of the VM with the beacons, which must not notice anything: so many, none later than a limit in
/// microseconds, if there is one.
///
/// Counted, time is that of the instructions of all CPUs, of which QEMU runs one at a time: a beacon may wait for another
/// CPU's turn to end, and a guest that spins uses its whole turn (100 ms). Not counted, time is the host's: a beacon can
/// only be damaged or silent, not late.
pub fn beacon(memory: &str, options: &str) -> String {
    guest("beacon", "beacon", memory, &format!("cmdline = \"{options}\""))
}

/// The beacons of VM 1 came all and in time.
pub fn beacons_are_good(record: &Record) -> Result<(), String> {
    match record.console(1).contains("@done beacons=") && record.console(1).contains(" errors=0") {
        true => Ok(()),
        false => Err("the VM beside it noticed".to_owned()),
    }
}
