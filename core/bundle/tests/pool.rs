// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pool that VMs have memory from in common.

mod common;

use common::{program, vm};
use turnstile_bundle::{
    Bundle, BundleError, DiskSpec, Drive, DriveKind, Mapping, PortSpec, ServiceDevice, ServiceSpec,
    SpecError, VmSpec, write, write_with,
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

/// A service that reaches its VM's memory.
fn reaching(program: &[u8]) -> ServiceSpec<'_> {
    ServiceSpec {
        name: "s",
        program,
        vm: Some(0),
        device: ServiceDevice::Uart,
        limit: ServiceSpec::LIMIT,
        memory: true,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
        cpu: None,
    }
}

#[test]
fn services_reach_memory_of_a_pool_but_no_controller_does() {
    let program = program(183);
    let vms = [pooled("a", &[0], 64 * MIB), vm("b", &[1])];
    let (uart, other) = (reaching(&program), ServiceSpec { name: "t", vm: Some(1), ..reaching(&program) });
    let network = ServiceSpec { name: "lan", vm: None, device: ServiceDevice::Network, ..uart };
    let port = PortSpec {
        service: 1,
        vm: 0,
        mac: [2, 0, 0, 0, 0, 1],
        guard: false,
        isolated: false,
        rate: None,
        queues: 1,
    };
    write_with(&vms, &[uart, network], &[], &[port], 64 * MIB).unwrap();
    let drive = Drive { kind: DriveKind::Nvme, number: 0, partition: None, trusted: true };
    let disk =
        DiskSpec { name: "d", image: None, size: 0, read_only: false, writes: None, drive: Some(drive) };
    let problem = |service: ServiceSpec<'_>| {
        let disk_of = ServiceSpec { device: ServiceDevice::Pci, disk: Some(0), ..service };
        write_with(&vms, &[disk_of], &[disk], &[], 64 * MIB).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(problem(other), Ok(()));
    let refused = problem(uart).unwrap_err();
    assert!(
        refused.contains("behind a controller of the machine, and its VM's memory comes from a pool"),
        "{refused}"
    );
}

#[test]
fn balloons_are_of_vms_that_have_memory_from_a_pool() {
    let program = program(183);
    let vms = [pooled("a", &[0], 64 * MIB), vm("b", &[1])];
    let balloon = ServiceSpec { device: ServiceDevice::Balloon, ..reaching(&program) };
    let problem = |services: &[ServiceSpec<'_>]| {
        write_with(&vms, services, &[], &[], 64 * MIB).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(problem(&[balloon]), Ok(()));
    let refused = |service: ServiceSpec<'_>, why: &str| {
        let refused = problem(&[service]).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    };
    refused(ServiceSpec { vm: Some(1), ..balloon }, "must come from a pool (mapping \"from-pool\")");
    refused(ServiceSpec { memory: false, ..balloon }, "its device is `balloon`, so it must reach");
    let second = problem(&[balloon, ServiceSpec { name: "t", ..balloon }]).unwrap_err();
    assert!(second.contains("the same device of the same VM"), "{second}");
}
