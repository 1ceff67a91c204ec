// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes services of the PCI functions that a VM has by a key of its own: its entropy device, its console, its named ports, its
//! balloon.

use std::ops::Range;

use turnstile_bundle::{MAX_NAME, ServiceDevice, ServiceSpec};

use super::problem::Problem;
use super::read::At;
use super::service::{Draft, Runs};
use super::{Vm, disk};

/// A kind of function.
struct Kind {
    /// How the names of its services begin.
    name: &'static str,
    device: ServiceDevice,
    program: &'static str,
    /// How long it may take for an event, in nanoseconds.
    limit: u64,
    /// Where a VM says that it has one.
    place: fn(&Vm) -> Option<&Range<usize>>,
}

/// In the order of their slots, of which new ones come last: what a guest has keeps its slot.
const KINDS: [Kind; 4] = [
    Kind {
        name: "entropy",
        device: ServiceDevice::Entropy,
        program: "rng",
        limit: disk::LIMIT,
        place: |vm| vm.entropy.as_ref(),
    },
    Kind {
        name: "console",
        device: ServiceDevice::Console,
        program: "console",
        // It waits for the machine's serial line, as others do.
        limit: *ServiceSpec::LIMITS.end(),
        place: |vm| vm.console.as_ref(),
    },
    Kind {
        name: "ports",
        device: ServiceDevice::Ports,
        program: "ports",
        limit: *ServiceSpec::LIMITS.end(),
        place: |vm| vm.ports.first().map(|port| &port.span),
    },
    Kind {
        name: "balloon",
        device: ServiceDevice::Balloon,
        program: "balloon",
        limit: disk::LIMIT,
        place: |vm| vm.balloon.as_ref(),
    },
];

/// Makes the services, kind by kind, in the order of the VMs, and finds names that are too long for one.
pub fn services(vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for kind in &KINDS {
        for vm in vms {
            let Some(place) = (kind.place)(vm) else { continue };
            let name = format!("{}-{}", kind.name, vm.name.value);
            if name.len() > MAX_NAME {
                let what = format!("the name of its service, `{name}`, is longer than {MAX_NAME} characters");
                problems.push(Problem::new(place.clone(), what, "give the VM a shorter name"));
                continue;
            }
            let runs = Runs { limit: kind.limit, beside_realtime: false, cpu: None };
            let name = At::new(name, place.clone());
            let draft = Draft::of_device(name, kind.device, kind.program, runs, &vm.name.value);
            drafts.push(match kind.device {
                ServiceDevice::Ports => draft.with_ports(&vm.ports),
                _ => draft,
            });
        }
    }
    drafts
}
