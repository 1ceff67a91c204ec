// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written is read back, equal images are stored once, and wrong descriptions are refused.

use std::collections::BTreeSet;

use proptest::prelude::*;
use turnstile_bundle::{
    Bundle, BundleError, CpuList, GuestMachine, MAX_CMDLINE, MAX_NAME, OnCrash, Pmu, SpecError, VmLabel,
    VmSpec, write,
};
use turnstile_machine::MapError;

const MIB: u64 = 1 << 20;

fn cpus(list: &[u16]) -> CpuList {
    CpuList::new(list).unwrap()
}

fn vm(name: &'static str, list: &[u16]) -> VmSpec<'static> {
    VmSpec {
        name,
        cpus: cpus(list),
        memory: 64 * MIB,
        machine: GuestMachine::Virt,
        pmu: Pmu::Off,
        on_crash: OnCrash::Stop,
        statistics: false,
        cmdline: "console=ttyAMA0",
        kernel: b"kernel",
        initrd: None,
    }
}

#[test]
fn two_vms_read_back() {
    let linux = VmSpec { initrd: Some(b"initrd"), ..vm("linux", &[0, 1]) };
    let measure = VmSpec {
        machine: GuestMachine::Kvmtool,
        pmu: Pmu::Trapped,
        on_crash: OnCrash::Restart,
        statistics: true,
        cmdline: "",
        kernel: b"another kernel",
        ..vm("measure-1", &[3])
    };
    let blob = write(&[linux.clone(), measure.clone()]).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!(bundle.vms(), [linux, measure]);
    assert_eq!(bundle.vms()[0].vcpus(), 2);
    // Read in place: the images are not copies.
    assert!(blob.as_ptr_range().contains(&bundle.vms()[0].kernel.as_ptr()));
}

#[test]
fn the_same_vms_give_the_same_bytes() {
    let write_once = || write(&[vm("a", &[0]), vm("b", &[1])]).unwrap();
    assert_eq!(write_once(), write_once());
    let other = write(&[vm("a", &[0]), vm("c", &[1])]).unwrap();
    assert_ne!(Bundle::parse(&write_once()).unwrap().digest(), Bundle::parse(&other).unwrap().digest());
}

#[test]
fn equal_images_are_stored_once() {
    let kernel = vec![0xa5; 100_000];
    let kernel_again = kernel.clone();
    let a = VmSpec { kernel: &kernel, ..vm("a", &[0]) };
    let b = VmSpec { kernel: &kernel_again, initrd: Some(&kernel), ..vm("b", &[1]) };
    let blob = write(&[a, b]).unwrap();
    assert!(blob.len() < 102_000, "{} bytes", blob.len());
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!(bundle.vms()[0].kernel.as_ptr(), bundle.vms()[1].kernel.as_ptr());
    assert_eq!(bundle.vms()[1].initrd, Some(&kernel[..]));
}

#[test]
fn a_wrong_vm_is_named_with_what_is_wrong() {
    let problem = |spec: VmSpec<'_>| match write(&[vm("first", &[9]), spec]) {
        Err(BundleError::Vm { vm, problem }) => {
            assert_eq!(vm.index, 1);
            problem
        }
        other => panic!("{other:?}"),
    };
    let long_name = "x".repeat(MAX_NAME + 1);
    let long_cmdline = "x".repeat(MAX_CMDLINE + 1);
    let good = || vm("vm", &[0]);

    assert_eq!(problem(VmSpec { name: "", ..good() }), SpecError::NoName);
    assert_eq!(problem(VmSpec { name: &long_name, ..good() }), SpecError::NameTooLong(32));
    assert_eq!(problem(VmSpec { name: "Linux", ..good() }), SpecError::NameCharacter('L'));
    assert_eq!(problem(VmSpec { name: "größe", ..good() }), SpecError::NameCharacter('ö'));
    assert_eq!(problem(VmSpec { name: "a\0", ..good() }), SpecError::NameCharacter('\0'));
    assert_eq!(problem(VmSpec { cpus: cpus(&[]), ..good() }), SpecError::Map(MapError::Vcpus(0)));
    assert_eq!(problem(VmSpec { cpus: cpus(&[1, 2, 1]), ..good() }), SpecError::CpuTwice(1));
    assert_eq!(problem(VmSpec { cpus: cpus(&[1024]), ..good() }), SpecError::CpuOutOfRange(1024));
    assert_eq!(problem(VmSpec { memory: 5 * MIB, ..good() }), SpecError::Map(MapError::Unaligned(5 * MIB)));
    assert_eq!(problem(VmSpec { cmdline: &long_cmdline, ..good() }), SpecError::CmdlineTooLong(2048));
    assert_eq!(problem(VmSpec { cmdline: "a\0b", ..good() }), SpecError::CmdlineNul);
    assert_eq!(problem(VmSpec { kernel: &[], ..good() }), SpecError::NoKernel);
    assert_eq!(problem(VmSpec { initrd: Some(&[]), ..good() }), SpecError::EmptyInitrd);

    let bounds = VmSpec { name: &long_name[1..], cmdline: &long_cmdline[1..], ..vm("x", &[1023]) };
    assert!(write(&[bounds]).is_ok());
}

#[test]
fn sixty_five_cpus_are_too_many() {
    let list: Vec<u16> = (0..65).collect();
    let error = CpuList::new(&list).unwrap_err();
    assert_eq!(error, SpecError::TooManyCpus(65));
    assert_eq!(error.to_string(), "65 vCPUs are too many; give at most 64");
    assert!(write(&[vm("big", &list[..64])]).is_ok());
}

#[test]
fn vms_must_not_share_names_or_cpus() {
    assert_eq!(write(&[]), Err(BundleError::NoVms));
    let (a, b) = (VmLabel::new(0, "a"), VmLabel::new(1, "b"));
    let same = VmLabel::new(1, "a");
    assert_eq!(write(&[vm("a", &[0]), vm("a", &[1])]), Err(BundleError::SameName { vm: same, other: a }));
    let error = write(&[vm("a", &[0, 5]), vm("b", &[1, 5])]).unwrap_err();
    assert_eq!(error, BundleError::SharedCpu { cpu: 5, vm: b, other: a });
    assert_eq!(error.to_string(), "VM `b` and VM `a` both want physical CPU 5; give each its own");

    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"];
    let vms: Vec<_> = names.iter().enumerate().map(|(index, name)| vm(name, &[index as u16])).collect();
    assert_eq!(Bundle::parse(&write(&vms[..16]).unwrap()).unwrap().vms().len(), 16);
    assert_eq!(write(&vms), Err(BundleError::TooManyVms(17)));
}

/// One VM without its name and CPUs, which must differ between VMs.
type Rest = (usize, u64, bool, bool, bool, String, Vec<u8>, Option<Vec<u8>>);

fn rest() -> impl Strategy<Value = Rest> {
    let image = || prop::collection::vec(any::<u8>(), 1..40);
    let initrd = prop::option::of(image());
    (1usize..=8, 2u64..4096, any::<bool>(), any::<bool>(), any::<bool>(), "[ -~ä]{0,80}", image(), initrd)
}

proptest! {
    #[test]
    fn any_valid_bundle_reads_back(
        names in prop::collection::btree_set("[a-z0-9-]{1,31}", 1..=16),
        rest in prop::collection::vec(rest(), 16),
        padding in 0usize..4096,
    ) {
        let names: Vec<String> = BTreeSet::into_iter(names).collect();
        let mut next_cpu = 0;
        let vms: Vec<VmSpec<'_>> = names.iter().zip(&rest).map(|(name, rest)| {
            let (count, units, kvmtool, pmu, restart, cmdline, kernel, initrd) = rest;
            // Every second CPU, downwards within the VM, so that order matters.
            let mut list: Vec<u16> = (0..*count as u16).map(|cpu| next_cpu + 2 * cpu).collect();
            next_cpu += 2 * *count as u16;
            list.reverse();
            VmSpec {
                name,
                cpus: cpus(&list),
                memory: units * 2 * MIB,
                machine: if *kvmtool { GuestMachine::Kvmtool } else { GuestMachine::Virt },
                pmu: if *pmu { Pmu::Trapped } else { Pmu::Off },
                statistics: count % 2 == 0,
                on_crash: if *restart { OnCrash::Restart } else { OnCrash::Stop },
                cmdline,
                kernel,
                initrd: initrd.as_deref(),
            }
        }).collect();
        let mut blob = write(&vms).unwrap();
        blob.resize(blob.len() + padding, 0);
        let bundle = Bundle::parse(&blob).unwrap();
        prop_assert_eq!(bundle.vms(), &vms[..]);
    }
}
