// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor refuses, in a sentence, and how it reports faults of its own.

use turnstile::isa::Isa;

use super::refused::{RESET, change, damaged, echo, fault, panic, refuse, too_few_cpus};
use super::scenario::{Ending, Scenario, Step, guest};

/// The architecture of this topic.
const ISA: Isa = Isa::Arm64;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let [image, truncated, other, none] = damaged(ISA);
    let description =
        refuse(ISA, "flipped-byte-in-the-description", "damaged: the description", |boot, folder| {
            change(boot, folder, |bytes| flip_in_name(bytes))
        });
    let mut scenarios = vec![
        image,
        description,
        truncated,
        other,
        none,
        refuse(ISA, "started-at-el1", "EL1", |boot, _| {
            boot.virtualization = false;
            Ok(())
        }),
        refuse(ISA, "vhe-on-a-cpu-without", "which mode=vhe asks for", |boot, _| {
            boot.cpu = "cortex-a57".to_owned();
            boot.append.push_str(" mode=vhe");
            Ok(())
        }),
        refuse(ISA, "ablation-without-vhe", "an image for ablation needs a CPU with", |boot, _| {
            boot.append.push_str(" mode=nvhe");
            Ok(())
        })
        .without("none"),
        too_few_cpus(ISA),
        too_little_memory(),
        panic(ISA),
        read_guest(),
    ];
    scenarios.extend(protections());
    scenarios
}

/// What the hypervisor's own translation tables forbid it.
pub fn protections() -> [Scenario; 3] {
    [
        fault(ISA, "write-to-code", &[EXCEPTION, PERMISSION_FAULT_ON_WRITE, RESET]),
        fault(ISA, "run-data", &[EXCEPTION, PERMISSION_FAULT_ON_FETCH, RESET]),
        fault(ISA, "stack-overflow", &[EXCEPTION, TRANSLATION_FAULT_ON_WRITE, "backtrace", RESET]),
    ]
}

const EXCEPTION: &str = "synchronous exception in the hypervisor on CPU 0";
/// ESR_EL2: a data abort at EL2, write, permission fault at level 3.
const PERMISSION_FAULT_ON_WRITE: &str = "ESR_EL2 0x9600004f";
/// An instruction abort at EL2, permission fault at level 3.
const PERMISSION_FAULT_ON_FETCH: &str = "ESR_EL2 0x8600000f";
/// A data abort at EL2, write, translation fault at level 3: the guard page is not mapped.
const TRANSLATION_FAULT_ON_WRITE: &str = "ESR_EL2 0x96000047";
/// A data abort at EL2, read, translation fault at level 2: nothing of the 2 MiB is mapped.
const TRANSLATION_FAULT_ON_READ: &str = "ESR_EL2 0x96000006";

/// A read of a guest's memory while the guest runs on another CPU: EL2 does not map it.
fn read_guest() -> Scenario {
    let scenario = fault(ISA, "read-guest", &[EXCEPTION, TRANSLATION_FAULT_ON_READ, "backtrace", RESET]);
    scenario.with_config(echo(ISA, "cpus = [1]"))
}

/// The machine has less memory than the VM wants: that VM does not start, and the others would.
fn too_little_memory() -> Scenario {
    let config = guest("echo", "echo", "512MiB", "");
    let steps = vec![Step::Reported("memory")];
    let scenario = Scenario::new("refusal/too-little-memory", config, steps);
    scenario.ending(Ending::Done { crashed: 1 }).prepare(|boot, _| {
        boot.memory = 192 << 20;
        Ok(())
    })
}

/// Makes another name of the VM's.
fn flip_in_name(bytes: &mut [u8]) {
    let name = b"echo\0";
    let place = bytes.windows(name.len()).rposition(|window| window == name);
    if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
        *byte ^= 1;
    }
}
