// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bundle that was changed, cut or padded is never accepted, and nothing in it makes the reader panic:
//! neither accidents (the digest does not match) nor blobs made on purpose (it does).

mod common;

use common::{DIGEST, sign};
use turnstile_bundle::{
    Apic, Bundle, BundleError, Feature, Flat, Format, Interrupts, Machine, Paravirt, Part, Pc, Pseries,
    SpecError, TripleFault, VmSpec, write,
};
use vm_fdt::FdtWriter;

fn valid() -> Vec<u8> {
    let vm = |name, list| VmSpec {
        cmdline: "console=ttyAMA0",
        kernel: b"the kernel of both",
        ..common::vm(name, list)
    };
    write(&[vm("linux", &[0, 1]), VmSpec { initrd: Some(b"an initial RAM disk"), ..vm("other", &[2]) }])
        .unwrap()
}

fn find(blob: &[u8], text: &[u8]) -> usize {
    blob.windows(text.len()).position(|window| window == text).unwrap()
}

#[test]
fn signing_is_what_the_writer_does() {
    let mut blob = valid();
    blob[DIGEST].fill(0);
    sign(&mut blob);
    assert_eq!(blob, valid());
}

#[test]
fn every_flipped_bit_is_found() {
    let blob = valid();
    for at in 0..blob.len() {
        for bit in 0..8 {
            let mut changed = blob.clone();
            changed[at] ^= 1 << bit;
            assert!(Bundle::parse(&changed).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn the_damaged_part_is_named() {
    let blob = valid();
    let with = |at: usize| {
        let mut changed = blob.clone();
        changed[at] ^= 4;
        Bundle::parse(&changed).unwrap_err()
    };
    assert_eq!(with(0), BundleError::NotABundle);
    assert_eq!(with(find(&blob, b"kernel of both")), BundleError::Damaged(Part::Image(0)));
    assert_eq!(with(find(&blob, b"RAM disk")), BundleError::Damaged(Part::Image(1)));
    assert_eq!(with(find(&blob, b"console=")), BundleError::Damaged(Part::Description));
    assert_eq!(with(DIGEST.start), BundleError::Damaged(Part::Description));
    assert_eq!(with(60), BundleError::Damaged(Part::Structure));
    let message = BundleError::Damaged(Part::Image(1)).to_string();
    assert!(message.contains("image 1") && message.contains("build it again"), "{message}");
}

#[test]
fn every_cut_is_found() {
    let blob = valid();
    assert_eq!(Bundle::parse(&[]).unwrap_err(), BundleError::Missing);
    for have in 1..blob.len() {
        let error = Bundle::parse(&blob[..have]).unwrap_err();
        let expected = match have {
            1..4 => BundleError::NotABundle,
            4..8 => BundleError::Truncated { have, need: usize::MAX },
            _ => BundleError::Truncated { have, need: blob.len() },
        };
        assert_eq!(error, expected, "{have} bytes");
    }
}

#[test]
fn only_zeros_may_follow() {
    let blob = valid();
    let need = blob.len();
    let followed = |bytes: &[u8]| Bundle::parse(&[&blob[..], bytes].concat()).map(|_| ()).unwrap_err();
    assert!(Bundle::parse(&[&blob[..], &[0; 0xffff]].concat()).is_ok());
    assert_eq!(followed(&[0; 0x1_0000]), BundleError::Trailing { have: need + 0x1_0000, need });
    assert_eq!(followed(&[0, 0, 1]), BundleError::Trailing { have: need + 3, need });
}

#[test]
fn other_files_are_no_bundles() {
    assert_eq!(Bundle::parse(b"070701").unwrap_err(), BundleError::NotABundle);
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_string("compatible", "linux,dummy-virt").unwrap();
    fdt.end_node(root).unwrap();
    let blob = fdt.finish().unwrap();
    assert_eq!(Bundle::parse(&blob).unwrap_err(), BundleError::NotABundle);
}

#[test]
fn another_version_is_named_as_such() {
    let mut blob = valid();
    // The version's value follows `compatible`, padded: the only word 5 after it.
    let at = find(&blob, b"turnstile,bundle") + 20 + 12;
    assert_eq!(blob[at..at + 4], turnstile_bundle::VERSION.to_be_bytes());
    blob[at + 3] = 1;
    assert_eq!(Bundle::parse(&blob).unwrap_err(), BundleError::Version(1));
    sign(&mut blob);
    assert_eq!(Bundle::parse(&blob).unwrap_err(), BundleError::Version(1));
}

/// Builds a signed bundle whose first VM's node is written by `describe`.
fn crafted(describe: impl Fn(&mut FdtWriter), extra: impl Fn(&mut FdtWriter)) -> Vec<u8> {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_u64("digest", 0).unwrap();
    fdt.property_string("compatible", "turnstile,bundle").unwrap();
    fdt.property_u32("version", turnstile_bundle::VERSION).unwrap();
    let images = fdt.begin_node("images").unwrap();
    let image = fdt.begin_node("image-0").unwrap();
    fdt.property_u64("digest", 0).unwrap();
    fdt.property("data", b"kernel").unwrap();
    fdt.end_node(image).unwrap();
    fdt.end_node(images).unwrap();
    let vms = fdt.begin_node("vms").unwrap();
    let vm = fdt.begin_node("vm-0").unwrap();
    describe(&mut fdt);
    fdt.end_node(vm).unwrap();
    fdt.end_node(vms).unwrap();
    extra(&mut fdt);
    fdt.end_node(root).unwrap();
    let mut blob = fdt.finish().unwrap();
    sign(&mut blob);
    blob
}

const PROPERTIES: [(&str, &[u8]); 14] = [
    ("name", b"linux\0"),
    ("vcpus", &[0, 0, 0, 1]),
    ("cpus", &[0, 0, 0, 3]),
    ("schedule", b"pinned\0"),
    ("memory", &[0, 0, 0, 0, 4, 0, 0, 0]),
    ("mapping", b"on-demand\0"),
    ("machine", b"virt\0"),
    ("gic", b"auto\0"),
    ("pmu", b"off\0"),
    ("format", b"image\0"),
    ("virtio", b"pci\0"),
    ("on-crash", b"stop\0"),
    ("cmdline", b"\0"),
    ("kernel", &[0, 0, 0, 0]),
];

/// A crafted bundle in which one property has another value, or is left out.
fn with(name: &str, value: Option<&[u8]>) -> Result<(), BundleError> {
    let describe = |fdt: &mut FdtWriter| {
        for (property, usual) in PROPERTIES {
            let value = if property == name { value } else { Some(usual) };
            if let Some(value) = value {
                fdt.property(property, value).unwrap();
            }
        }
    };
    Bundle::parse(&crafted(describe, |_| {})).map(|_| ())
}

#[test]
fn a_malformed_description_is_refused_though_its_digest_matches() {
    assert_eq!(with("", None), Ok(()));
    for (name, _) in PROPERTIES {
        assert!(matches!(with(name, None), Err(BundleError::Malformed(_))), "no {name}");
        assert!(with(name, Some(&[])).is_err(), "empty {name}");
        assert!(with(name, Some(&[0xff; 7])).is_err(), "seven bytes for {name}");
    }
    assert_eq!(with("machine", Some(b"amiga\0")), Err(BundleError::Malformed("a VM's machine")));
    assert!(matches!(with("mapping", Some(b"never\0")), Err(BundleError::Malformed(_))));
    assert_eq!(with("kernel", Some(&[0, 0, 0, 1])), Err(BundleError::Malformed("an image's index")));
    assert!(matches!(with("name", Some(b"a\0b\0")), Err(BundleError::Malformed(_))));
    assert!(matches!(with("memory", Some(&[0xff; 8])), Err(BundleError::Vm { .. })));
    assert!(matches!(with("cpus", Some(&[0xff; 4])), Err(BundleError::Vm { .. })));
    let error = with("vcpus", Some(&[0, 0, 2, 1])).unwrap_err();
    assert_eq!(error.to_string(), "VM `linux`: 513 vCPUs are too many for a GICv3; give at most 512");
    let virtio = with("virtio", Some(b"isa\0"));
    assert_eq!(virtio, Err(BundleError::Malformed("how a VM reaches its virtio devices")));
    assert_eq!(with("gic", Some(b"v4\0")), Err(BundleError::Malformed("a VM's interrupt controller")));
}

#[test]
fn a_machine_has_what_belongs_to_its_architecture() {
    let machine = |name: &'static [u8], more: &[(&str, &[u8])]| {
        let describe = |fdt: &mut FdtWriter| {
            let common = PROPERTIES
                .iter()
                .filter(|(name, _)| !["machine", "gic", "pmu", "format", "virtio"].contains(name));
            common.for_each(|(name, value)| fdt.property(name, value).unwrap());
            fdt.property("machine", name).unwrap();
            more.iter().for_each(|(name, value)| fdt.property(name, value).unwrap());
        };
        Bundle::parse(&crafted(describe, |_| {})).map(|bundle| bundle.vms()[0].machine)
    };
    let pc_of = |apic: &'static [u8], paravirt: &'static [u8], triple_fault: &'static [u8]| {
        machine(b"pc\0", &[("apic", apic), ("paravirt", paravirt), ("triple-fault", triple_fault)])
    };
    let pc = |apic, paravirt| pc_of(apic, paravirt, b"reset\0");
    let paravirt = Paravirt::NONE.with(Feature::Clock).with(Feature::Eoi);
    let expected = Machine::Pc(Pc { apic: Apic::Xapic, paravirt, ..Pc::default() });
    assert_eq!(pc(b"xapic\0", b"clock\0eoi\0"), Ok(expected));
    assert_eq!(pc(b"x2apic\0", b""), Ok(Machine::Pc(Pc { paravirt: Paravirt::NONE, ..Pc::default() })));
    for wrong in [&b"clock"[..], b"clock\0clock\0", b"\0", b"clock\0\0", b"time\0", b"clock\0eoi", b"\xff\0"]
    {
        let malformed = BundleError::Malformed("a VM's paravirtual interface");
        assert_eq!(pc(b"x2apic\0", wrong), Err(malformed), "{wrong:?}");
    }
    assert_eq!(pc(b"gic\0", b""), Err(BundleError::Malformed("a VM's local APIC")));
    let crash = Pc { apic: Apic::Xapic, paravirt: Paravirt::NONE, triple_fault: TripleFault::Crash };
    assert_eq!(pc_of(b"xapic\0", b"", b"crash\0"), Ok(Machine::Pc(crash)));
    let malformed = Err(BundleError::Malformed("what a triple fault is"));
    assert_eq!(pc_of(b"xapic\0", b"", b"halt\0"), malformed);
    assert_eq!(machine(b"pc\0", &[("apic", b"xapic\0"), ("paravirt", b"")]), malformed);
    assert!(matches!(machine(b"pc\0", &[("apic", b"xapic\0")]), Err(BundleError::Malformed(_))));
    let other = Err(BundleError::Malformed("a property of another machine"));
    assert_eq!(machine(b"pc\0", &[("apic", b"xapic\0"), ("paravirt", b""), ("gic", b"v3\0")]), other);
    assert_eq!(machine(b"virt\0", &[("gic", b"v3\0"), ("pmu", b"off\0"), ("apic", b"xapic\0")]), other);
    for (name, value) in [
        ("format", &b"image\0"[..]),
        ("load", &[0; 8]),
        ("entry", &[0; 8]),
        ("flash", &[0; 8]),
        ("virtio", b"mmio\0"),
    ] {
        assert_eq!(machine(b"pc\0", &[("apic", b"xapic\0"), ("paravirt", b""), (name, value)]), other);
        assert_eq!(machine(b"pseries\0", &[("interrupts", b"xive\0"), (name, value)]), other);
    }
    let pseries =
        |value, threads: &[u8]| machine(b"pseries\0", &[("interrupts", value), ("threads", threads)]);
    let expected = Machine::Pseries(Pseries { interrupts: Interrupts::Xics, threads: 1 });
    assert_eq!(pseries(b"xics\0", &[0, 0, 0, 1]), Ok(expected));
    for wrong in [&[][..], &[0, 0, 1, 1]] {
        assert_eq!(pseries(b"xics\0", wrong), Err(BundleError::Malformed("the threads of a VM's cores")));
    }
    assert_eq!(pseries(b"gic\0", &[0, 0, 0, 1]), Err(BundleError::Malformed("a VM's interrupt controller")));
    assert_eq!(machine(b"pseries\0", &[("interrupts", b"xive\0"), ("sve", b"")]), other);
    assert_eq!(machine(b"virt\0", &[("gic", b"v3\0"), ("pmu", b"off\0"), ("threads", &[0, 0, 0, 1])]), other);
}

#[test]
fn a_flat_image_has_addresses_and_no_other() {
    let format = |name: &'static [u8], more: &'static [(&str, &[u8])]| {
        let describe = |fdt: &mut FdtWriter| {
            for (property, usual) in PROPERTIES {
                fdt.property(property, if property == "format" { name } else { usual }).unwrap();
            }
            more.iter().for_each(|(property, value)| fdt.property(property, value).unwrap());
        };
        Bundle::parse(&crafted(describe, |_| {})).map(|bundle| *bundle.vms()[0].machine.arm64().unwrap())
    };
    const LOAD: (&str, &[u8]) = ("load", &[0, 0, 0, 0, 0x40, 0x20, 0, 0]);
    const ENTRY: (&str, &[u8]) = ("entry", &[0, 0, 0, 0, 0x40, 0x20, 0, 4]);
    let flat = Format::Flat(Flat { load: 0x4020_0000, entry: 0x4020_0004 });
    assert_eq!(format(b"flat\0", &[LOAD, ENTRY]).unwrap().format, flat);
    assert_eq!(format(b"image\0", &[]).unwrap().format, Format::Image);
    let malformed = Err(BundleError::Malformed("a kernel's format"));
    for more in [&[][..], &[LOAD], &[ENTRY]] {
        assert_eq!(format(b"flat\0", more), malformed, "{more:?}");
    }
    for more in [&[LOAD, ENTRY][..], &[LOAD], &[ENTRY]] {
        assert_eq!(format(b"image\0", more), malformed, "{more:?}");
    }
    assert_eq!(format(b"elf\0", &[]), malformed);
    let number = Err(BundleError::Malformed("a number of 64 bits"));
    assert_eq!(format(b"flat\0", &[("load", &[0; 4]), ENTRY]), number);
    assert_eq!(format(b"image\0", &[("flash", &[0; 4])]), number);
    assert_eq!(format(b"image\0", &[("flash", &[0, 0, 0, 0, 0, 0x40, 0, 0])]).unwrap().flash, 4 << 20);
    // Not a power of two, less than a block of stage 2, more than there is room for.
    for size in [&[0, 0, 0, 0, 0, 0x60, 0, 0], &[0, 0, 0, 0, 0, 0x10, 0, 0], &[0, 0, 0, 0, 8, 0, 0, 0]] {
        let more = [("flash", &size[..])];
        let describe = |fdt: &mut FdtWriter| {
            PROPERTIES.iter().chain(&more).for_each(|(name, value)| fdt.property(name, value).unwrap());
        };
        let error = Bundle::parse(&crafted(describe, |_| {})).unwrap_err();
        assert!(error.to_string().contains("power of two from 2 to 64 MiB"), "{error}");
    }
}

#[test]
fn a_schedule_has_what_belongs_to_it() {
    let schedule = |name: &'static [u8], more: &'static [(&str, u32)]| {
        let describe = |fdt: &mut FdtWriter| {
            for (property, usual) in PROPERTIES {
                fdt.property(property, if property == "schedule" { name } else { usual }).unwrap();
            }
            more.iter().for_each(|(property, value)| fdt.property_u32(property, *value).unwrap());
        };
        Bundle::parse(&crafted(describe, |_| {})).map(|_| ())
    };
    let malformed = Err(BundleError::Malformed("a VM's schedule"));
    assert_eq!(schedule(b"shared\0", &[("weight", 1)]), Ok(()));
    assert_eq!(schedule(b"shared\0", &[("realtime", 1)]), Ok(()));
    assert_eq!(schedule(b"shared\0", &[]), malformed);
    assert_eq!(schedule(b"shared\0", &[("weight", 1), ("realtime", 1)]), malformed);
    assert_eq!(schedule(b"pinned\0", &[("weight", 1)]), malformed);
    assert_eq!(schedule(b"fifo\0", &[]), malformed);
    // What does not fit its type is not cut down to something that would be accepted.
    let problem = |more| match schedule(b"shared\0", more) {
        Err(BundleError::Vm { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(&[("weight", 0x1_0001)]), SpecError::Weight(u16::MAX));
    assert_eq!(problem(&[("realtime", 0x101)]), SpecError::Priority(u8::MAX));
}

#[test]
fn a_flag_is_there_or_not() {
    let statistics = |value: &'static [u8]| {
        let describe = |fdt: &mut FdtWriter| {
            PROPERTIES.iter().for_each(|(name, value)| fdt.property(name, value).unwrap());
            fdt.property("statistics", value).unwrap();
        };
        Bundle::parse(&crafted(describe, |_| {})).map(|bundle| bundle.vms()[0].statistics)
    };
    assert_eq!(statistics(&[]), Ok(true));
    assert_eq!(statistics(b"on\0"), Err(BundleError::Malformed("a flag with a value")));
}

#[test]
fn what_the_format_does_not_know_is_refused() {
    let all = |fdt: &mut FdtWriter| {
        PROPERTIES.iter().for_each(|(name, value)| fdt.property(name, value).unwrap());
    };
    let refused = |describe: &dyn Fn(&mut FdtWriter), extra: &dyn Fn(&mut FdtWriter)| {
        matches!(Bundle::parse(&crafted(describe, extra)), Err(BundleError::Malformed(_)))
    };
    let node = |fdt: &mut FdtWriter| {
        let node = fdt.begin_node("more").unwrap();
        fdt.end_node(node).unwrap();
    };
    assert!(!refused(&all, &|_| {}));
    assert!(refused(&all, &node));
    let with_child = |fdt: &mut FdtWriter| {
        all(fdt);
        node(fdt);
    };
    assert!(refused(&with_child, &|_| {}));
    for name in ["devices", "name"] {
        let with_property = |fdt: &mut FdtWriter| {
            all(fdt);
            fdt.property(name, b"x\0").unwrap();
        };
        assert!(refused(&with_property, &|_| {}), "{name}");
    }
}

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn mutate(blob: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(blob.len());
        match random.below(6) {
            0 => blob[at] = random.next() as u8,
            1 => blob[at] ^= 1 << random.below(8),
            2 => {
                // A whole word: lengths, offsets, tags.
                let word = [0, 1, 2, 3, 9, 0x7fff_ffff, 0xffff_ffff, random.next() as u32][random.below(8)];
                let at = at & !3;
                if let Some(place) = blob.get_mut(at..at + 4) {
                    place.copy_from_slice(&word.to_be_bytes());
                }
            }
            3 => blob.truncate(at.max(1)),
            4 => blob.insert(at, random.next() as u8),
            _ => {
                let (from, length) = (random.below(blob.len()), random.below(32));
                let piece: Vec<u8> = blob[from..].iter().copied().take(length).collect();
                blob.splice(at..at, piece);
            }
        }
    }
}

#[test]
fn mutated_bundles_are_never_accepted_and_never_panic() {
    let original = valid();
    let mut random = Random(0x6275_6e64_6c65_2121);
    let (mut signed, mut read) = (0, 0);
    for _ in 0..20_000 {
        let mut blob = original.clone();
        mutate(&mut blob, &mut random);
        let unchanged = blob.starts_with(&original) && blob[original.len()..].iter().all(|&byte| byte == 0);
        assert_eq!(Bundle::parse(&blob).is_ok(), unchanged);

        // The same blob as its author would have signed it: the checks behind the digest.
        if blob.len() >= DIGEST.end {
            let size = blob.len() as u32;
            blob[..4].copy_from_slice(&original[..4]);
            blob[4..8].copy_from_slice(&size.to_be_bytes());
            sign(&mut blob);
            signed += 1;
            if let Ok(bundle) = Bundle::parse(&blob) {
                read += 1;
                assert!(turnstile_bundle::validate(bundle.vms()).is_ok());
            }
        }
    }
    assert!(signed > 10_000 && read > 100, "{signed} signed, {read} read");
}
