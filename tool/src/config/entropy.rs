// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a service of the entropy device of each VM that has one.

use turnstile_bundle::MAX_NAME;

use super::problem::Problem;
use super::read::At;
use super::service::{Draft, Runs};
use super::{Vm, disk};

/// Makes the services of the VMs with `entropy`, in their order, and finds names that are too long for one.
pub fn services(vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for vm in vms {
        let Some(place) = &vm.entropy else { continue };
        let name = format!("entropy-{}", vm.name.value);
        if name.len() > MAX_NAME {
            let what = format!("the name of its service, `{name}`, is longer than {MAX_NAME} characters");
            problems.push(Problem::new(place.clone(), what, "give the VM a shorter name"));
            continue;
        }
        let runs = Runs { limit: disk::LIMIT, beside_realtime: false, cpu: None };
        drafts.push(Draft::of_entropy(At::new(name, place.clone()), runs, &vm.name.value));
    }
    drafts
}
