// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests that say themselves what they found, on each architecture: that what they may rely on is there, that nothing of
//! their state is lost or another VM's, and that what is typed comes back.

use turnstile::isa::Isa;
use turnstile_link::{Command, Memory, Outcome, Pool, StopReason};

use super::scenario::{Ending, Record, Scenario, Step, guest};

/// All of the guest's own tests; `more` are further lines of its table, as everywhere here.
pub fn selftest(isa: Isa, which: &str, memory: &str, more: &str) -> Scenario {
    let steps = vec![Step::Expect(0, "@boot selftest"), Step::Expect(0, "@done passed=")];
    let config = guest("selftest", "selftest", memory, more);
    Scenario::at(isa, format!("selftest/{which}"), config, steps).counted().judge(no_failures)
}

/// The same with memory that is mapped when it is first touched, by any of four vCPUs.
pub fn on_demand(isa: Isa, memory: &str) -> Scenario {
    selftest(isa, "on-demand", memory, "vcpus = 4\nmapping = \"on-demand\"")
}

/// A guest that resets itself again and again, with memory that is cleared when it is first touched: in each life it finds zeroes
/// in all of it, whatever it has left there.
pub fn restarts_on_demand(isa: Isa, memory: &str) -> Scenario {
    const RESTARTS: u32 = 10;
    let config = guest("restart", "restart", memory, "mapping = \"on-demand\"\nstatistics = true");
    let steps = vec![
        Step::Started(0, RESTARTS),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::at(isa, "restart/on-demand", config, steps).limit(300).judge(|record| {
        match record.console(0).contains("@error") {
            true => Err("memory that was touched first was not zero".to_owned()),
            false => Ok(()),
        }
    })
}

/// How often the memory of a VM is read that has the pool for itself.
const READINGS: usize = 3;

/// Two guests that reset themselves again and again and want more memory from a pool than it has: one waits for what the other gives back
/// when it ends. Each finds zeroes in all of its memory, whatever the other has left there. One that waits can be stopped, and the other
/// goes on with all that it had. None has a balloon, which whoever asks is told. How much that is the hypervisor says whenever it is asked.
pub fn restarts_from_pool(isa: Isa, memory: &str, pool: &str) -> Scenario {
    // More lives than the pool has blocks: one that is lost in each is missed.
    const RESTARTS: u32 = 20;
    const ASK: Command = Command::Balloon { vm: 0, bytes: 2 << 20 };
    let vm = |name| guest(name, "restart", memory, "mapping = \"from-pool\"");
    let config = format!("{}{}[pool]\nsize = \"{pool}\"\n", vm("first"), vm("second"));
    let mut steps = vec![
        Step::Started(0, 1),
        Step::Started(1, 1),
        Step::Tell(ASK),
        Step::Answered(ASK, Outcome::NoBalloon),
        // One has nothing more to get by then, or both.
        Step::Wait(300),
        Step::Tell(Command::Memory),
        // Not waited for by their reasons: they may be about to reset themselves.
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Started(1, RESTARTS),
    ];
    // One may be between two lives.
    steps.extend((0..READINGS).flat_map(|_| [Step::Tell(Command::Memory), Step::Wait(10)]));
    steps.push(Step::Tell(Command::Stop { vm: 1 }));
    Scenario::at(isa, "restart/from-pool", config, steps).limit(300).judge(|record| {
        match [0, 1].into_iter().find(|vm| record.console(*vm).contains("@error")) {
            Some(vm) => Err(format!("memory that VM {vm} touched first was not zero")),
            None => {
                has_memory_of_pool(record)?;
                match record.text.contains("waits for memory: the pool is empty (wait 1)") {
                    true => Ok(()),
                    false => Err("the log does not say that a VM waits for memory".to_owned()),
                }
            }
        }
    })
}

/// Of two VMs that want more than the pool has, the first one was stopped between the first reading and the others.
fn has_memory_of_pool(record: &Record) -> Result<(), String> {
    let of =
        |vm| record.memory.iter().filter(|(of, _)| *of == vm).map(|(_, memory)| *memory).collect::<Vec<_>>();
    let (stopped, alone) = (of(0), of(1));
    let is_possible = |(memory, pool): (&Memory, &Pool)| {
        memory.bytes <= memory.limit && !memory.waits && pool.free >= pool.bytes - memory.limit
    };
    let is_good = match (&stopped[..], &alone[..]) {
        ([first, stopped @ ..], [second, alone @ ..]) => {
            first.bytes + second.bytes > 0
                && stopped.iter().all(|memory| (memory.bytes, memory.waits) == (0, false) && memory.limit > 0)
                && alone.iter().any(|memory| memory.bytes > 0)
                && alone.iter().zip(record.pools.iter().skip(1)).filter(|both| is_possible(*both)).count()
                    == READINGS
        }
        _ => false,
    };
    match is_good {
        true => Ok(()),
        false => Err(format!("they have no such memory: {:?} {:?}", record.memory, record.pools)),
    }
}

/// Interrupts as many as can be, each accounted for.
pub fn pressure(isa: Isa, which: &str, memory: &str, more: &str) -> Scenario {
    let steps = vec![Step::Expect(0, "@boot pressure"), Step::Expect(0, "@done passed=")];
    let config = guest("pressure", "pressure", memory, more);
    Scenario::at(isa, format!("pressure/{which}"), config, steps).limit(300).judge(no_failures)
}

/// Ten million interrupts, none of which is lost or doubled: the guest's test `test` with these lines.
pub fn ten_million(isa: Isa, which: &str, memory: &str, more: &str, test: &str) -> Scenario {
    let more = format!("{more}\ncmdline = \"test={test} count=10000000\"");
    pressure(isa, &format!("ten-million-{which}"), memory, &more).limit(900).long()
}

/// The guest's own tests all passed.
pub fn no_failures(record: &Record) -> Result<(), String> {
    match record.console(0).contains(" failed=0") {
        true => Ok(()),
        false => Err("the guest did not report failed=0".to_owned()),
    }
}

/// The mixed load for a second of virtual time.
pub fn load(isa: Isa, which: &str, memory: &str, more: &str) -> Scenario {
    let steps = vec![Step::Expect(0, "@boot load"), Step::Expect(0, "@done load")];
    let config = guest("load", "load", memory, more);
    Scenario::at(isa, format!("load/{which}"), config, steps).counted()
}

/// Nothing of the registers that exits could lose gets lost over them, and at first nothing is in them.
pub fn facilities_alone(isa: Isa, which: &str, memory: &str, more: &str) -> Scenario {
    let steps = vec![Step::Expect(0, "@boot facilities"), Step::Expect(0, "@done facilities errors=0")];
    let config = guest("facilities", "facilities", memory, more);
    Scenario::at(isa, format!("facilities/{which}"), config, steps).counted()
}

/// Two VMs with different state, one of which starts again and again, never see each other's, nor that of an earlier
/// life. `again` and `long` are whole lines of their tables.
pub fn facilities_of_two(isa: Isa, memory: &str, again: &str, long: &str) -> Scenario {
    let vm = |name: &str, more: &str, options: &str| {
        guest(name, "facilities", memory, &format!("{more}cmdline = \"{options}\""))
    };
    let config = vm("again", again, "seed=1 rounds=2 again") + &vm("long", long, "seed=2 rounds=60");
    let steps = vec![Step::Started(0, 10), Step::Expect(1, "@done facilities errors=0")];
    let scenario = Scenario::at(isa, "facilities/two-vms", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// The same of VMs that take turns on a CPU.
pub fn facilities_shared(isa: Isa, memory: &str) -> Scenario {
    let vm = |name: &str, options: &str| {
        let more = format!("cpus = [0]\nschedule = \"shared\"\ncmdline = \"{options}\"");
        guest(name, "facilities", memory, &more)
    };
    let config = vm("long", "seed=1 rounds=30") + &vm("again", "seed=2 rounds=2 again");
    let steps = vec![Step::Started(1, 5), Step::Expect(0, "@done facilities errors=0")];
    let scenario = Scenario::at(isa, "facilities/sharing", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// No VM found what is not its own.
pub fn nothing_strange(record: &Record) -> Result<(), String> {
    match record.consoles.iter().any(|console| console.contains("@error")) {
        true => Err("a VM found what is not its own".to_owned()),
        false => Ok(()),
    }
}

/// What is typed comes back, also after a restart.
pub fn echo(isa: Isa, name: &str, config: String) -> Scenario {
    echo_and(isa, name, config, &[])
}

/// The same, also more than any FIFO holds, at once.
pub fn echo_at_length(isa: Isa, name: &str, config: String) -> Scenario {
    let long = [
        Step::Type(0, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789-abcdefgh\r"),
        Step::Expect(
            0,
            "@echo 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789-abcdefgh",
        ),
    ];
    echo_and(isa, name, config, &long)
}

fn echo_and(isa: Isa, name: &str, config: String, further: &[Step]) -> Scenario {
    let mut steps = vec![
        Step::Expect(0, "echo> "),
        Step::Type(0, "hello, guest\r"),
        Step::Expect(0, "@echo hello, guest"),
    ];
    steps.extend_from_slice(further);
    steps.extend([
        Step::Type(0, "reset\r"),
        Step::Started(0, 2),
        Step::Expect(0, "@boot echo"),
        Step::Expect(0, "echo> "),
        Step::Type(0, "quit\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ]);
    Scenario::at(isa, name, config, steps)
}

/// What is typed comes back from a guest of its own on the CPU of this number, on a machine with these lines. The guest's
/// machine is of this model.
pub fn echo_on_board(isa: Isa, name: &str, machine: &str, model: &str, cpu: u16) -> Scenario {
    let vm = guest("echo", "echo", "16MiB", &format!("machine = \"{model}\""));
    let config = format!("[machine]\n{machine}\n{vm}cpus = [{cpu}]\n");
    echo_at_length(isa, &format!("boards/{name}"), config)
}
