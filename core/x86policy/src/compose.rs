// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The leaves of a vCPU, from those of the physical CPU.
//!
//! A vCPU is a core of its own with one thread; all are in one package, share the last level of cache, and have their
//! numbers as APIC IDs.

use alloc::vec;
use alloc::vec::Vec;

use turnstile_mitigation::x86_64::Offer;

use crate::features as feature;
use crate::table::{Answer, CpuidTable, Follows, RANGES, Registers};

/// The physical CPU: what its CPUID answers to a leaf and a subleaf.
pub type Host<'a> = &'a dyn Fn(u32, u32) -> [u32; 4];

/// What a vCPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its APIC ID.
    pub id: u32,
    /// How many vCPUs its VM has.
    pub count: u32,
    /// Whether its APIC has the x2APIC mode.
    pub x2apic: bool,
    /// KVM's features ([`feature::kvm`]); `None` leaves the hypervisor's leaves out.
    pub kvm: Option<u32>,
    /// What it is told of speculation.
    pub speculation: Offer,
}

/// The highest basic leaf that is offered: XSAVE.
const HIGHEST_BASIC: u32 = 0xd;
/// The highest extended leaf that is offered.
const HIGHEST_EXTENDED: u32 = 0x8000_0021;
/// The lowest extended leaf that every 64-bit processor has.
const LOWEST_EXTENDED: u32 = 0x8000_0008;
/// The highest leaf of the hypervisor.
const HIGHEST_KVM: u32 = 0x4000_0001;
/// KVM's signature in EBX, ECX, EDX of leaf 4000_0000.
const KVM_SIGNATURE: [u32; 3] =
    [u32::from_le_bytes(*b"KVMK"), u32::from_le_bytes(*b"VMKV"), u32::from_le_bytes(*b"M\0\0\0")];

impl CpuidTable {
    /// Composes the leaves of a vCPU.
    pub fn compose(host: Host<'_>, processor: &Processor) -> Self {
        let mut table = Self::new();
        let composer = Composer { host, processor };
        let basic = host(0, 0)[0].clamp(0xb, HIGHEST_BASIC);
        for leaf in 0..=basic {
            composer.basic(&mut table, leaf, basic);
        }
        if let Some(features) = processor.kvm {
            let [ebx, ecx, edx] = KVM_SIGNATURE;
            table.push(1, &[Answer::constant([HIGHEST_KVM, ebx, ecx, edx])], true);
            table.push(1, &[Answer::constant([features, 0, 0, 0])], true);
        }
        let [highest, ..] = host(RANGES[2], 0);
        let extended = highest.clamp(LOWEST_EXTENDED, HIGHEST_EXTENDED);
        for leaf in RANGES[2]..=extended {
            composer.extended(&mut table, leaf, extended);
        }
        table
    }
}

struct Composer<'a> {
    host: Host<'a>,
    processor: &'a Processor,
}

impl Composer<'_> {
    /// Bits of an APIC ID that number the vCPUs.
    fn id_bits(&self) -> u32 {
        self.processor.count.next_power_of_two().trailing_zeros()
    }

    /// The number of vCPUs as far as a field of eight bits can say it.
    fn count_byte(&self) -> u32 {
        self.processor.count.min(255)
    }

    fn has_xsave(&self) -> bool {
        let [highest, ..] = (self.host)(0, 0);
        highest >= 0xd && (self.host)(1, 0)[2] & feature::XSAVE != 0
    }

    fn basic(&self, table: &mut CpuidTable, leaf: u32, highest: u32) {
        let host = self.host;
        let plain = |registers| vec![Answer::constant(registers)];
        let (answers, ignores_ecx) = match leaf {
            0 => {
                let [_, ebx, ecx, edx] = host(0, 0);
                (plain([highest, ebx, ecx, edx]), true)
            }
            1 => (vec![Answer { registers: self.leaf_1(), follows: Follows::Features }], true),
            6 => (plain([feature::ARAT, 0, 0, 0]), true),
            7 => (self.leaf_7(), false),
            0xb => (self.topology(), false),
            0xd if self.has_xsave() => (self.xsave(table), false),
            // Caches and TLBs in Intel's form, MONITOR, performance monitoring, resource control: none.
            _ => (plain([0; 4]), true),
        };
        table.push(0, &answers, ignores_ecx);
    }

    fn leaf_1(&self) -> Registers {
        let [eax, ebx, ecx, edx] = (self.host)(1, 0);
        let Processor { id, count, x2apic, .. } = *self.processor;
        let mut ecx = ecx & feature::LEAF_1_ECX | feature::HYPERVISOR | feature::TSC_DEADLINE;
        if !self.has_xsave() {
            ecx &= !feature::XSAVE;
        }
        if x2apic {
            ecx |= feature::X2APIC;
        }
        let mut edx = edx & feature::LEAF_1_EDX | feature::APIC;
        if count > 1 {
            edx |= feature::HTT;
        }
        // Bits 31:24 the APIC ID, 23:16 the logical processors, 15:8 the unit of CLFLUSH.
        [eax, (id & 0xff) << 24 | self.count_byte() << 16 | ebx & 0xff00, ecx, edx]
    }

    fn leaf_7(&self) -> Vec<Answer> {
        let [highest, ebx, ecx, edx] = (self.host)(7, 0);
        if (self.host)(0, 0)[0] < 7 {
            return vec![Answer::NONE];
        }
        let features =
            [highest.min(1), ebx & feature::LEAF_7_EBX, ecx & feature::LEAF_7_ECX, edx & feature::LEAF_7_EDX];
        let mut answers = vec![Answer { registers: features, follows: Follows::Ospke }];
        if highest >= 1 {
            let [eax, ..] = (self.host)(7, 1);
            answers.push(Answer::constant([eax & feature::LEAF_7_1_EAX, 0, 0, 0]));
        }
        answers
    }

    /// Leaf b: one thread in a core, all cores in the package.
    fn topology(&self) -> Vec<Answer> {
        const THREAD: u32 = 1;
        const CORE: u32 = 2;
        let Processor { id, count, .. } = *self.processor;
        let level = |shift, logical, number: u32, kind: u32| {
            Answer::constant([shift, logical, number | kind << 8, id])
        };
        vec![level(0, 1, 0, THREAD), level(self.id_bits(), count, 1, CORE), level(0, 0, 2, 0)]
    }

    fn xsave(&self, table: &mut CpuidTable) -> Vec<Answer> {
        let [low, _, _, high] = (self.host)(0xd, 0);
        let offered = (u64::from(high) << 32 | u64::from(low)) & feature::XCR0;
        let mut components = Vec::new();
        for number in (2..64).filter(|number| offered >> number & 1 != 0) {
            let [size, offset, ecx, _] = (self.host)(0xd, number);
            let aligned = ecx >> 1 & 1 != 0;
            table.set_component(number as usize, size, offset, aligned);
            components.push((number as usize, Answer::constant([size, offset, u32::from(aligned) << 1, 0])));
        }
        let whole = table.xsave_size(offered);
        let reset = table.xsave_size(1);
        let [instructions, ..] = (self.host)(0xd, 1);
        let mut answers = vec![
            Answer {
                registers: [offered as u32, reset, whole, (offered >> 32) as u32],
                follows: Follows::XsaveSize,
            },
            Answer {
                registers: [instructions & feature::LEAF_D_1_EAX, table.compacted_size(1), 0, 0],
                follows: Follows::CompactedSize,
            },
        ];
        if let Some((last, _)) = components.last() {
            answers.resize(last + 1, Answer::NONE);
        }
        components.into_iter().for_each(|(number, answer)| answers[number] = answer);
        answers
    }

    fn extended(&self, table: &mut CpuidTable, leaf: u32, highest: u32) {
        let host = |leaf| if leaf <= (self.host)(RANGES[2], 0)[0] { (self.host)(leaf, 0) } else { [0; 4] };
        let [eax, ebx, ecx, edx] = host(leaf);
        let speculation = &self.processor.speculation;
        let registers = match leaf & 0xff {
            0x00 => [highest, ebx, ecx, edx],
            0x01 => [eax, ebx, self.extended_features(ecx, highest), self.extended_basic(edx)],
            // The name; caches and TLBs in AMD's form.
            0x02..=0x06 | 0x19 => [eax, ebx, ecx, edx],
            0x07 => [0, 0, 0, edx & feature::EXTENDED_7_EDX],
            0x08 => {
                let cores = self.count_byte() - 1;
                let ebx = ebx & feature::EXTENDED_8_EBX | speculation.extended_8_ebx;
                [eax & 0xffff, ebx, self.id_bits() << 12 | cores, 0]
            }
            // How wide the units are that execute SSE and AVX.
            0x1a => [eax, 0, 0, 0],
            0x1d => return self.caches(table),
            // The extended APIC ID; the core, with one thread; the node, of one.
            0x1e => [self.processor.id, self.processor.id & 0xff, 0, 0],
            0x21 => {
                let eax = eax & feature::EXTENDED_21_EAX | speculation.extended_21_eax;
                [eax, 0, speculation.extended_21_ecx, 0]
            }
            // SVM, profiling, encrypted memory: none.
            _ => [0; 4],
        };
        table.push(2, &[Answer::constant(registers)], true);
    }

    fn extended_features(&self, ecx: u32, highest: u32) -> u32 {
        let mut features = ecx & feature::EXTENDED_1_ECX;
        if highest >= 0x8000_001e {
            features |= feature::TOPOLOGY;
        }
        if self.processor.count > 1 {
            features |= feature::CMP_LEGACY;
        }
        features
    }

    fn extended_basic(&self, edx: u32) -> u32 {
        edx & feature::EXTENDED_1_EDX | feature::APIC
    }

    /// Leaf 8000_001d: the last level is shared by all, the others by nobody.
    fn caches(&self, table: &mut CpuidTable) {
        const LAST_LEVEL: u32 = 3;
        let mut answers = Vec::new();
        // A processor has at most a handful; one that never ends its list is cut off.
        for subleaf in 0..8 {
            let [eax, ebx, ecx, edx] = (self.host)(0x8000_001d, subleaf);
            if eax & 0x1f == 0 {
                break;
            }
            let sharing = if eax >> 5 & 7 == LAST_LEVEL { self.processor.count - 1 } else { 0 };
            answers.push(Answer::constant([eax & !(0xfff << 14) | (sharing & 0xfff) << 14, ebx, ecx, edx]));
        }
        answers.push(Answer::NONE);
        table.push(2, &answers, false);
    }
}
