// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pool that VMs have memory from in common.

mod common;

use common::{program, vm};
use turnstile_bundle::{
    Bundle, BundleError, Mapping, PortSpec, ServiceDevice, ServiceSpec, SpecError, VmSpec, write, write_with,
};

const MIB: u64 = 1 << 20;

fn pooled(name: &'static str, list: &'static [u16], memory: u64) -> VmSpec<'static> {
    VmSpec { mapping: Mapping::FromPool, memory, ..vm(name, list) }
}

#[test]
fn a_pool_is_read_as_it_was_written() {
    let vms = [pooled("a", &[0], 64 * MIB), pooled("b", &[1], 64 * MIB), vm("c", &[2])];
    let blob = write_with(&vms, &[], &[], &[], 64 * MIB).unwrap();
    let other = write(&vms[2..]).unwrap();
    let mut bundle = Bundle::parse(&blob).unwrap();
    assert_eq!((bundle.pool(), bundle.vms()), (64 * MIB, &vms[..]));
    bundle.read(&other).unwrap();
    assert_eq!(bundle.pool(), 0, "nothing is left of what was read before");
}

#[test]
fn pools_and_vms_that_do_not_fit_are_refused() {
    let problem = |vms: &[VmSpec<'_>], pool| write_with(vms, &[], &[], &[], pool).unwrap_err();
    let label = |problem| match problem {
        BundleError::Vm { vm, problem } => (vm.index, problem),
        other => panic!("{other}"),
    };
    let vms = [vm("a", &[0]), pooled("b", &[1], 64 * MIB)];
    assert_eq!(label(problem(&vms, 0)), (1, SpecError::NoPool));
    let (memory, pool) = (64 * MIB, 62 * MIB);
    assert_eq!(label(problem(&vms, pool)), (1, SpecError::PoolTooSmall { memory, pool }));
    assert_eq!(problem(&vms, 65 * MIB), BundleError::Pool(65 * MIB));
    assert_eq!(problem(&vms[..1], 64 * MIB), BundleError::PoolUnused);
}

#[test]
fn services_do_not_reach_memory_of_a_pool() {
    let program = program(183);
    let vms = [pooled("a", &[0], 64 * MIB)];
    let plain = ServiceSpec {
        name: "s",
        program: &program,
        vm: Some(0),
        device: ServiceDevice::Uart,
        limit: ServiceSpec::LIMIT,
        memory: false,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
        cpu: None,
    };
    let problem = |service, ports: &[PortSpec]| {
        write_with(&vms, &[service], &[], ports, 64 * MIB).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(problem(plain, &[]), Ok(()));
    let reaches = problem(ServiceSpec { memory: true, ..plain }, &[]).unwrap_err();
    assert!(reaches.contains("which comes from a pool; give that VM memory of its own"), "{reaches}");
    let network = ServiceSpec { vm: None, device: ServiceDevice::Network, memory: true, ..plain };
    let port = PortSpec {
        service: 0,
        vm: 0,
        mac: [2, 0, 0, 0, 0, 1],
        guard: false,
        isolated: false,
        rate: None,
        queues: 1,
    };
    let reaches = problem(network, &[port]).unwrap_err();
    assert!(reaches.contains("the memory of its VM comes from a pool"), "{reaches}");
}
