// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distributor, which a VM's physical CPUs share (Arm IHI 0069, section 12.9; Arm IHI 0048, section 4.3).

use alloc::boxed::Box;

use crate::config::{ConfigError, Model, VgicConfig};
use crate::incoming::Incoming;
use crate::registers::{self, Bank, bank, block, gicd, is_word};
use crate::routes::{Neighbors, Routes, SearchedTargets, SgiRegister, SgiTargets};
use crate::spi::{Flag, Spi, SpiWord};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::{MAX_GICV2_VCPUS, MAX_SPIS, MAX_VCPUS};

/// Is the distributor of a VM, with its SPIs and the affinities of its vCPUs.
///
/// Shared by all physical CPUs; every method takes `&self`, and nothing locks.
pub struct Vgic {
    routes: Routes,
    pub(crate) spis: Box<[Spi]>,
    /// `GICD_CTLR.EnableGrp*`.
    groups: AtomicU32,
    /// GICv3: the vCPUs that were told to look at [`Self::groups`] and have not, a bit each. Empty with GICv2.
    behind: Box<[AtomicU64]>,
    typer: u64,
    ctlr_fixed: u32,
    /// The offset and the value of `GICD_PIDR2`.
    pidr2: (u32, u32),
    pub(crate) model: Model,
    pub(crate) priority_mask: u8,
    pub(crate) group1_at_reset: bool,
    /// GICv2: a bit for each vCPU. Zero with GICv3.
    pub(crate) present: u8,
    /// GICv2: those of them that are on.
    on: AtomicU8,
    /// GICv2: for each vCPU, the SGIs on their way to it. Empty with GICv3.
    pub(crate) incoming: Box<[Incoming]>,
    /// The number of redistributors in the first of two regions, or all.
    pub(crate) first_region: usize,
}

impl Vgic {
    /// Builds a distributor in its reset state. Returns what is wrong with the configuration.
    pub fn new(config: &VgicConfig) -> Result<Self, ConfigError> {
        let vcpus = config.mpidrs.len();
        let gicv2 = config.model == Model::Gicv2;
        if vcpus == 0 || vcpus > if gicv2 { MAX_GICV2_VCPUS } else { MAX_VCPUS } {
            return Err(ConfigError::Vcpus);
        }
        if config.spis > MAX_SPIS || !config.spis.is_multiple_of(32) {
            return Err(ConfigError::Spis);
        }
        if !(4..=8).contains(&config.priority_bits) {
            return Err(ConfigError::PriorityBits);
        }
        let routes = Routes::new(config.mpidrs).ok_or(ConfigError::Affinities)?;
        let lines = config.spis / 32;
        let typer = if gicv2 {
            // ITLinesNumber, CPUNumber. No Security Extensions.
            lines | (vcpus as u32 - 1) << 5
        } else {
            // ITLinesNumber, MBIS, IDbits = 10 - 1, A3V, RSS. No LPIs, no Security Extensions, 1 of N.
            lines | 1 << 16 | 9 << 19 | 1 << 24 | u32::from(routes.needs_range_selector()) << 26
        };
        let vgic = Self {
            routes,
            spis: (0..config.spis).map(|_| Spi::new()).collect(),
            groups: AtomicU32::new(0),
            behind: (0..if gicv2 { 0 } else { vcpus.div_ceil(64) }).map(|_| AtomicU64::new(0)).collect(),
            typer: typer.into(),
            ctlr_fixed: if gicv2 { 0 } else { gicd::CTLR_FIXED },
            pidr2: if gicv2 { registers::GICV2_PIDR2 } else { registers::GICV3_PIDR2 },
            model: config.model,
            priority_mask: !(0xffu32 >> config.priority_bits) as u8,
            group1_at_reset: config.group1_at_reset && !gicv2,
            present: if gicv2 { ((1u32 << vcpus) - 1) as u8 } else { 0 },
            on: AtomicU8::new(0),
            incoming: (0..if gicv2 { vcpus } else { 0 }).map(|_| Incoming::new()).collect(),
            first_region: vcpus,
        };
        vgic.reset();
        Ok(vgic)
    }

    /// Says that only the first `count` redistributors follow each other in memory, and the others somewhere else:
    /// the last one of each region carries `GICR_TYPER.Last`.
    pub fn split_redistributors(&mut self, count: usize) {
        self.first_region = count;
    }

    /// Returns the distributor to its reset state. The vCPUs must not run, and each must be reset with
    /// [`VcpuGic::reset`](crate::VcpuGic::reset) too.
    pub fn reset(&self) {
        // Relaxed, and so below: nobody runs, and who starts the vCPUs orders this before what they do.
        self.groups.store(0, Ordering::Relaxed);
        self.behind.iter().for_each(|vcpus| vcpus.store(0, Ordering::Relaxed));
        self.on.store(0, Ordering::Relaxed);
        let word = SpiWord::reset(self.group1_at_reset);
        // On a GICv2 of one processor all interrupts target that one (Arm IHI 0048, section 4.3.12).
        let word = if self.present == 1 { word.with_targets(1) } else { word };
        for spi in &self.spis {
            spi.reset(word);
        }
        self.incoming.iter().for_each(Incoming::clear);
        self.routes.reset_sgi_groups(self.group1_at_reset);
    }

    /// Returns the architecture.
    #[inline] // One load.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns the number of vCPUs.
    #[inline] // One load.
    pub fn vcpus(&self) -> usize {
        self.routes.len()
    }

    /// Returns the affinity of a vCPU as in `MPIDR_EL1`.
    pub fn mpidr(&self, vcpu: usize) -> Option<u64> {
        self.routes.mpidr(vcpu)
    }

    /// Decodes a write to an SGI register that is no broadcast ([`SgiRegister::is_broadcast`]): the vCPUs it
    /// reaches. HOT: the cost is that of the targets named. Affinities that no vCPU has are ignored, and so are
    /// targets that have the SGI in the other group (Arm IHI 0069, section 12.1.10, with `DS` = 1).
    #[inline] // Hot: on the light exit of ICC_SGI1R_EL1.
    pub fn sgi_targets(&self, register: SgiRegister, value: u64) -> SgiTargets<'_> {
        self.routes.targets(register, value)
    }

    /// Returns the vCPUs that share a vCPU's Aff3, Aff2, Aff1 and range selector.
    pub fn neighbors(&self, vcpu: usize) -> Neighbors<'_> {
        self.routes.neighbors(vcpu)
    }

    /// Decodes a broadcast by vCPU `sender`: all others that have the SGI in the register's group.
    pub fn sgi_broadcast(
        &self,
        register: SgiRegister,
        value: u64,
        sender: usize,
    ) -> impl Iterator<Item = usize> {
        self.routes.broadcast(register, value).filter(move |vcpu| *vcpu != sender)
    }

    /// Does what [`Self::sgi_targets`] does by searching all vCPUs: to be measured against.
    pub fn search_sgi_targets(&self, register: SgiRegister, value: u64) -> SearchedTargets<'_> {
        self.routes.search(register, value)
    }

    pub(crate) fn set_sgi_groups(&self, vcpu: usize, group1: u32) {
        self.routes.set_sgi_groups(vcpu, group1);
    }

    /// Returns `GICD_CTLR.EnableGrp0` and `EnableGrp1`.
    #[inline] // Hot: a light register read.
    pub(crate) fn groups(&self) -> u32 {
        self.groups.load(Ordering::SeqCst)
    }

    pub(crate) fn set_groups(&self, groups: u32) -> u32 {
        self.groups.swap(groups & gicd::CTLR_GROUPS, Ordering::SeqCst)
    }

    /// Notes that a vCPU has to look at the group enables, before they are changed or it is told.
    pub(crate) fn set_behind(&self, vcpu: usize) {
        if let Some(vcpus) = self.behind.get(vcpu / 64) {
            vcpus.fetch_or(1 << (vcpu % 64), Ordering::SeqCst);
        }
    }

    /// Returns the group enables for a vCPU that takes them over.
    pub(crate) fn take_groups(&self, vcpu: usize) -> u32 {
        // Before they are read: whoever changes them afterwards notes it again.
        if let Some(vcpus) = self.behind.get(vcpu / 64) {
            vcpus.fetch_and(!(1 << (vcpu % 64)), Ordering::SeqCst);
        }
        self.groups()
    }

    /// Reads `GICD_CTLR`; `None` while vCPUs have still to look at the group enables. HOT.
    #[inline] // In a wide exit.
    pub fn read_control_light(&self, offset: u32, size: u8) -> Option<u64> {
        if offset != gicd::CTLR || size != 4 {
            return None;
        }
        // First: who changes the enables is behind until it has told all others.
        let control = self.control();
        let behind = self.behind.iter().any(|vcpus| vcpus.load(Ordering::SeqCst) != 0);
        (!behind).then_some(control.into())
    }

    /// Returns the vCPUs that have not looked at the group enables.
    pub(crate) fn behind(&self) -> impl Iterator<Item = usize> {
        (0..self.vcpus()).filter(move |vcpu| {
            let vcpus = self.behind.get(vcpu / 64).map_or(0, |vcpus| vcpus.load(Ordering::SeqCst));
            vcpus >> (vcpu % 64) & 1 != 0
        })
    }

    /// Returns `GICD_CTLR` without `RWP`.
    pub(crate) fn control(&self) -> u32 {
        self.groups() | self.ctlr_fixed
    }

    /// Returns whether the group of `word` is enabled.
    pub(crate) fn group_enabled(&self, word: SpiWord) -> bool {
        self.groups() >> u32::from(word.has(Flag::Group1)) & 1 != 0
    }

    pub(crate) fn spi(&self, intid: u32) -> Option<&Spi> {
        self.spis.get((intid as usize).checked_sub(32)?)
    }

    /// Returns the vCPU an SPI is routed to. One of many (1 of N) is always the first vCPU with GICv3, and
    /// the first of its targets that is on with GICv2.
    pub(crate) fn route(&self, word: SpiWord) -> Option<usize> {
        if self.model == Model::Gicv2 {
            // Sequentially consistent as `set_groups` is: a vCPU that goes on or off says so here and then
            // walks all words, so either the walk sees an interrupt pending, or who made it so sees this.
            let targets = word.targets() & self.on.load(Ordering::SeqCst);
            return (targets != 0).then(|| targets.trailing_zeros() as usize);
        }
        if word.has(Flag::AnyVcpu) { Some(0) } else { self.routes.vcpu(word.affinity()) }
    }

    /// Notes whether a vCPU is on. Whoever calls it has to walk the SPIs afterwards.
    pub(crate) fn set_on(&self, vcpu: usize, on: bool) {
        let bit = 1 << (vcpu & 7) & self.present;
        if on {
            self.on.fetch_or(bit, Ordering::SeqCst);
        } else {
            self.on.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Reads what guests read most of the distributor: `GICD_TYPER`, and `GICD_CTLR`, which Linux reads each time that it masks an
    /// interrupt. HOT.
    #[inline(always)] // Hot: in a light exit that has few registers.
    pub fn dist_read_light(&self, offset: u32, size: u8) -> Option<u64> {
        if size != 4 {
            return None;
        }
        match offset {
            gicd::TYPER => Some(self.typer),
            // One word tells of all vCPUs, if there are not more than it has bits.
            gicd::CTLR => match &*self.behind {
                [] => Some(self.control().into()),
                [vcpus] => {
                    let groups = self.groups();
                    // What does not change is read last: that takes a register less.
                    (vcpus.load(Ordering::SeqCst) == 0).then(|| (groups | self.ctlr_fixed).into())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Reads a distributor register that needs nothing but the shared state: all but the pending and
    /// active registers, for which it returns `None`, as for `GICD_CTLR` ([`Self::read_control_light`]). With GICv2 it
    /// does so for all but the control registers: of each bank a part is the accessing vCPU's own. HOT. Reserved offsets
    /// and wrong sizes read as zero.
    #[inline] // In a wide exit.
    pub fn dist_read_shared(&self, offset: u32, size: u8) -> Option<u64> {
        if is_word(offset, size) {
            match bank(offset) {
                Bank::Control => {
                    return match offset {
                        gicd::CTLR => None,
                        gicd::TYPER => Some(self.typer),
                        gicd::IIDR => Some(registers::IIDR.into()),
                        _ => Some(0),
                    };
                }
                Bank::SetPending | Bank::ClearPending | Bank::SetActive | Bank::ClearActive => return None,
                _ => {}
            }
        }
        if self.model == Model::Gicv2 {
            return None;
        }
        Some(self.read_config(offset, size))
    }

    /// Reads a register of SPIs' configuration.
    pub(crate) fn read_config(&self, offset: u32, size: u8) -> u64 {
        if self.model == Model::Gicv3 && (gicd::ROUTER..gicd::ROUTER_END).contains(&offset) {
            return self.read_router(offset, size);
        }
        let bank = bank(offset);
        if bank == Bank::Targets && self.model == Model::Gicv2 {
            return self.read_targets(offset, size);
        }
        if bank == Bank::Priority && size == 1 {
            return u64::from(self.spi(offset - gicd::PRIORITY).map_or(0, |spi| spi.load().priority()));
        }
        if !is_word(offset, size) {
            return 0;
        }
        u64::from(match bank {
            Bank::Group => self.gather(32 * block(offset), |word| word.has(Flag::Group1)),
            Bank::SetEnable | Bank::ClearEnable => {
                self.gather(32 * block(offset), |word| word.has(Flag::Enabled))
            }
            Bank::Priority => (0..4).fold(0, |value, byte| {
                let spi = self.spi(offset - gicd::PRIORITY + byte);
                value | spi.map_or(0, |spi| u32::from(spi.load().priority())) << (8 * byte)
            }),
            Bank::Config => {
                let edges = self.gather(4 * (offset - gicd::CONFIG), |word| word.has(Flag::Edge));
                registers::config_from_bits(edges)
            }
            Bank::Reserved if offset == self.pidr2.0 => self.pidr2.1,
            _ => 0,
        })
    }

    fn read_router(&self, offset: u32, size: u8) -> u64 {
        let Some(spi) = self.spi((offset - gicd::ROUTER) / 8) else { return 0 };
        let router = spi.load().router();
        match (offset & 7, size) {
            (0, 8) => router,
            (0, 4) => router & 0xffff_ffff,
            (4, 4) => router >> 32,
            _ => 0,
        }
    }

    /// Collects one bit of each of the 32 SPIs from INTID `first` on.
    pub(crate) fn gather(&self, first: u32, bit: impl Fn(SpiWord) -> bool) -> u32 {
        (0..32)
            .fold(0, |bits, n| bits | u32::from(self.spi(first + n).is_some_and(|spi| bit(spi.load()))) << n)
    }
}
