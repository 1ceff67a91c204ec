// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written is read back, equal images are stored once, and wrong descriptions are refused.

use std::collections::BTreeSet;

use proptest::prelude::*;
use turnstile_bundle::{
    Apic, Arm64, Bundle, BundleError, Class, CpuList, Feature, Flat, Format, Gic, GicVersion, GuestMachine,
    Interrupts, MAX_CMDLINE, MAX_NAME, Machine, Mapping, OnCrash, Paravirt, Pc, Pmu, Pseries, Schedule,
    SpecError, Transport, TripleFault, VmLabel, VmSpec, write,
};
use turnstile_machine::MapError;

const MIB: u64 = 1 << 20;

const FAIR: Schedule = Schedule::Shared(Class::Fair { weight: 100 });

/// A VM that is pinned to these CPUs.
fn vm<'a>(name: &'static str, list: &'a [u16]) -> VmSpec<'a> {
    VmSpec {
        name,
        vcpus: list.len(),
        cpus: CpuList::new(list),
        schedule: Schedule::Pinned,
        memory: 64 * MIB,
        mapping: Mapping::AtStart,
        machine: Machine::default(),
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
        machine: Machine::Arm64(Arm64 {
            map: GuestMachine::Kvmtool,
            gic: Gic::V2,
            pmu: Pmu::Owned,
            sve: true,
            format: Format::Flat(Flat { load: 0x8020_0000, entry: 0x8020_0040 }),
            flash: 16 * MIB,
            virtio: Transport::Mmio,
        }),
        vcpus: 7,
        schedule: Schedule::Shared(Class::RealTime { priority: 99 }),
        mapping: Mapping::OnDemand,
        on_crash: OnCrash::Restart,
        statistics: true,
        cmdline: "",
        kernel: b"another kernel",
        ..vm("measure-1", &[3])
    };
    let blob = write(&[linux, measure]).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!(bundle.vms(), [linux, measure]);
    assert_eq!(bundle.vms()[0].cpus.get(1), Some(1));
    assert_eq!(bundle.vms()[0].cpus.get(2), None);
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
fn each_image_begins_at_a_multiple_of_a_cache_line() {
    let images: Vec<Vec<u8>> = (1..64).map(|length| vec![length as u8; 3 * length]).collect();
    for pair in images.windows(2) {
        let blob = write(&[VmSpec { kernel: &pair[0], initrd: Some(&pair[1]), ..vm("a", &[0]) }]).unwrap();
        let bundle = Bundle::parse(&blob).unwrap();
        let [kernel, initrd] = [bundle.vms()[0].kernel, bundle.vms()[0].initrd.unwrap()];
        assert_eq!([kernel, initrd], [&pair[0], &pair[1]]);
        for image in [kernel, initrd] {
            let offset = image.as_ptr().addr() - blob.as_ptr().addr();
            assert!(offset.is_multiple_of(turnstile_bundle::IMAGE_ALIGN), "{offset:#x}");
        }
    }
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
    assert_eq!(problem(vm("vm", &[1, 2, 1])), SpecError::CpuTwice(1));
    assert_eq!(problem(vm("vm", &[512])), SpecError::CpuOutOfRange(512));
    for (gic, version, vcpus) in
        [(Gic::Auto, GicVersion::V3, 0), (Gic::Auto, GicVersion::V3, 513), (Gic::V2, GicVersion::V2, 9)]
    {
        let machine = Machine::Arm64(Arm64 { gic, ..Arm64::default() });
        let problem = problem(VmSpec { machine, vcpus, schedule: FAIR, ..good() });
        assert_eq!(problem, SpecError::Map(MapError::Vcpus { gic: version, vcpus }));
    }
    for (apic, vcpus) in [(Apic::X2apic, 0), (Apic::X2apic, 513), (Apic::Xapic, 256)] {
        let machine = Machine::Pc(Pc { apic, ..Pc::default() });
        let problem = problem(VmSpec { machine, vcpus, schedule: FAIR, ..good() });
        assert_eq!(problem, SpecError::ApicVcpus { apic, vcpus });
    }
    for vcpus in [0, 513] {
        let machine = Machine::Pseries(Pseries::default());
        let problem = problem(VmSpec { machine, vcpus, schedule: FAIR, ..good() });
        assert_eq!(problem, SpecError::PartitionVcpus(vcpus));
    }
    for (threads, vcpus, wrong) in [
        (3, 3, SpecError::Threads(3)),
        (0, 1, SpecError::Threads(0)),
        (16, 16, SpecError::Threads(16)),
        (4, 6, SpecError::Cores { vcpus: 6, threads: 4 }),
    ] {
        let machine = Machine::Pseries(Pseries { threads, ..Pseries::default() });
        assert_eq!(problem(VmSpec { machine, vcpus, schedule: FAIR, ..good() }), wrong);
    }
    let pc = VmSpec { machine: Machine::Pc(Pc::default()), ..good() };
    let most = Pc::MAX_MEMORY;
    for (memory, wrong) in [
        (0, MapError::TooSmall(0)),
        (5 * MIB, MapError::Unaligned(5 * MIB)),
        (most + 2 * MIB, MapError::TooLarge { memory: most + 2 * MIB, most }),
    ] {
        assert_eq!(problem(VmSpec { memory, ..pc }), SpecError::Map(wrong));
    }
    assert!(write(&[VmSpec { memory: most, ..pc }]).is_ok());
    assert_eq!(problem(VmSpec { memory: 5 * MIB, ..good() }), SpecError::Map(MapError::Unaligned(5 * MIB)));
    assert_eq!(problem(VmSpec { cmdline: &long_cmdline, ..good() }), SpecError::CmdlineTooLong(2048));
    assert_eq!(problem(VmSpec { cmdline: "a\0b", ..good() }), SpecError::CmdlineNul);
    assert_eq!(problem(VmSpec { kernel: &[], ..good() }), SpecError::NoKernel);
    assert_eq!(problem(VmSpec { initrd: Some(&[]), ..good() }), SpecError::EmptyInitrd);

    let bounds = VmSpec { name: &long_name[1..], cmdline: &long_cmdline[1..], ..vm("x", &[511]) };
    assert!(write(&[bounds]).is_ok());
}

#[test]
fn the_threads_of_cores_read_back() {
    let machine = Machine::Pseries(Pseries { threads: 4, interrupts: Interrupts::Xics });
    let partition = VmSpec { machine, ..vm("partition", &[0, 1, 2, 3, 4, 5, 6, 7]) };
    let blob = write(&[partition]).unwrap();
    assert_eq!(Bundle::parse(&blob).unwrap().vms(), [partition]);
}

#[test]
fn the_largest_vm_has_512_vcpus() {
    let list: Vec<u16> = (0..512).collect();
    let blob = write(&[vm("big", &list)]).unwrap();
    assert!(Bundle::parse(&blob).unwrap().vms()[0].cpus.iter().eq(list.iter().copied()));
}

#[test]
fn schedules_are_checked() {
    let problem = |spec: VmSpec<'_>| match write(&[spec]) {
        Err(BundleError::Vm { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let fair = |weight| Schedule::Shared(Class::Fair { weight });
    let realtime = |priority| Schedule::Shared(Class::RealTime { priority });
    let shared = |schedule| VmSpec { vcpus: 5, schedule, ..vm("vm", &[0, 1]) };

    let pinned = problem(shared(Schedule::Pinned));
    assert_eq!(pinned, SpecError::Pinning { vcpus: 5, cpus: 2 });
    assert_eq!(pinned.to_string(), "its 5 vCPUs are pinned to 2 physical CPUs; name one for each");
    assert_eq!(
        problem(VmSpec { vcpus: 1, ..shared(Schedule::Pinned) }),
        SpecError::Pinning { vcpus: 1, cpus: 2 }
    );
    assert_eq!(problem(VmSpec { cpus: CpuList::new(&[]), ..shared(FAIR) }), SpecError::NoCpus);
    for weight in [0, 10_001] {
        assert_eq!(problem(shared(fair(weight))), SpecError::Weight(weight));
    }
    for priority in [0, 100] {
        assert_eq!(problem(shared(realtime(priority))), SpecError::Priority(priority));
    }
    for schedule in [fair(1), fair(10_000), realtime(1), realtime(99), Schedule::Shared(Class::default())] {
        let blob = write(&[shared(schedule)]).unwrap();
        assert_eq!(Bundle::parse(&blob).unwrap().vms(), [shared(schedule)]);
    }
}

#[test]
fn only_shared_vms_share_cpus() {
    let shared = |name, list| VmSpec { vcpus: 4, schedule: FAIR, ..vm(name, list) };
    assert!(
        write(&[shared("a", &[0, 1]), shared("b", &[1, 2]), shared("c", &[2, 1]), vm("d", &[3])]).is_ok()
    );

    let (a, b) = (VmLabel::new(0, "a"), VmLabel::new(1, "b"));
    let error = write(&[vm("a", &[0, 1]), shared("b", &[1, 2])]).unwrap_err();
    assert_eq!(error, BundleError::PinnedAndShared { cpu: 1, pinned: a, shared: b });
    assert_eq!(
        error.to_string(),
        "VM `a` wants physical CPU 1 for itself, and VM `b` shares it; take it out of one of their lists, or let \
         both share it"
    );
    let error = write(&[shared("a", &[1, 2]), vm("b", &[2])]).unwrap_err();
    assert_eq!(error, BundleError::PinnedAndShared { cpu: 2, pinned: b, shared: a });
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

    let names: Vec<String> = (0..33).map(|n| format!("vm-{n}")).collect();
    let vms: Vec<_> = names.iter().map(|name| VmSpec { name, schedule: FAIR, ..vm("", &[0]) }).collect();
    assert_eq!(Bundle::parse(&write(&vms[..32]).unwrap()).unwrap().vms().len(), 32);
    assert_eq!(write(&vms), Err(BundleError::TooManyVms(33)));
}

/// One VM without its name and CPUs, which must differ between VMs.
type Rest = (usize, u64, Machine, Schedule, bool, String, Vec<u8>, Option<Vec<u8>>);

fn machine() -> impl Strategy<Value = Machine> {
    let (gic, pmu) = (prop::sample::select(Gic::ALL), prop::sample::select(Pmu::ALL));
    let map = prop::sample::select(&GuestMachine::ALL[..]);
    let flat = (any::<u64>(), any::<u64>()).prop_map(|(load, entry)| Format::Flat(Flat { load, entry }));
    let format = prop_oneof![Just(Format::Image), flat];
    let flash = prop::sample::select(&[0, 2 * MIB, 16 * MIB][..]);
    let virtio = prop::sample::select(Transport::ALL);
    let arm64 = (map, gic, pmu, any::<bool>(), format, flash, virtio).prop_map(
        |(map, gic, pmu, sve, format, flash, virtio)| {
            Machine::Arm64(Arm64 { map, gic, pmu, sve, format, flash, virtio })
        },
    );
    let features = prop::sample::subsequence(&Feature::ALL[..], 0..=Feature::ALL.len());
    let choices = (prop::sample::select(Apic::ALL), prop::sample::select(TripleFault::ALL));
    let pc = (choices, features).prop_map(|((apic, triple_fault), features)| {
        let paravirt = features.into_iter().fold(Paravirt::NONE, Paravirt::with);
        Machine::Pc(Pc { apic, paravirt, triple_fault })
    });
    let pseries = prop::sample::select(Interrupts::ALL)
        .prop_map(|interrupts| Machine::Pseries(Pseries { interrupts, threads: 1 }));
    prop_oneof![arm64, pc, pseries]
}

fn rest() -> impl Strategy<Value = Rest> {
    let image = || prop::collection::vec(any::<u8>(), 1..40);
    let initrd = prop::option::of(image());
    let schedule = prop_oneof![
        Just(Schedule::Pinned),
        (1u16..=10_000).prop_map(|weight| Schedule::Shared(Class::Fair { weight })),
        (1u8..=99).prop_map(|priority| Schedule::Shared(Class::RealTime { priority })),
    ];
    (1usize..=8, 2u64..4096, machine(), schedule, any::<bool>(), "[ -~ä]{0,80}", image(), initrd)
}

#[test]
fn features_are_a_set() {
    assert_eq!(Paravirt::ALL.iter().collect::<Vec<_>>(), Feature::ALL);
    assert_eq!(Feature::ALL.into_iter().fold(Paravirt::ALL, Paravirt::without), Paravirt::NONE);
    let two = Paravirt::NONE.with(Feature::Unhalt).with(Feature::Clock);
    assert_eq!(two.iter().map(Feature::name).collect::<Vec<_>>(), ["clock", "unhalt"]);
    assert!(two.has(Feature::Clock) && !two.has(Feature::Eoi));
    assert!(Feature::ALL.into_iter().all(|feature| Feature::from_name(feature.name()) == Some(feature)));
}

proptest! {
    #[test]
    fn any_valid_bundle_reads_back(
        names in prop::collection::btree_set("[a-z0-9-]{1,31}", 1..=16),
        rest in prop::collection::vec(rest(), 16),
        padding in 0usize..4096,
    ) {
        let names: Vec<String> = BTreeSet::into_iter(names).collect();
        // Every second CPU, downwards within the VM, so that order matters.
        let lists: Vec<Vec<u16>> = rest.iter().enumerate()
            .map(|(vm, rest)| (0..rest.0 as u16).rev().map(|cpu| 16 * vm as u16 + 2 * cpu).collect())
            .collect();
        let vms: Vec<VmSpec<'_>> = names.iter().zip(&rest).zip(&lists).map(|((name, rest), list)| {
            let &(count, units, machine, schedule, restart, ref cmdline, ref kernel, ref initrd) = rest;
            VmSpec {
                name,
                vcpus: count,
                cpus: CpuList::new(list),
                schedule,
                memory: units * 2 * MIB,
                mapping: if count % 3 == 0 { Mapping::OnDemand } else { Mapping::AtStart },
                machine,
                statistics: count % 2 == 0,
                on_crash: if restart { OnCrash::Restart } else { OnCrash::Stop },
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
