// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The accounting: from executed blocks to visits, and from visits to groups. Knows nothing of QEMU.

mod groups;
mod visit;

pub use groups::{Group, Groups, Kind};

use crate::block::{Block, Names};
use crate::classify::is_irqchip;
use crate::footprint::Touch;
use crate::isa::Isa;
use crate::machine::{self, Machine};
use crate::tally::DeviceAccess;
use groups::Key;
use visit::{PATH, Visit};

/// A block of the guest: the low 48 bits of its address, and how many instructions it has.
///
/// It fits into the pointer that QEMU hands to a callback, so the guest's code needs no memory here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestBlock(pub u64);

impl GuestBlock {
    /// Packs a block.
    pub fn new(start: u64, instructions: usize) -> Self {
        GuestBlock(start << 16 | instructions as u64 & 0xffff)
    }

    fn instructions(self) -> u64 {
        self.0 & 0xffff
    }

    /// How many instructions of four bytes from `pc` on there are in the block; none if it is not in it.
    fn from(self, pc: u64) -> u64 {
        let distance = ((pc << 16).wrapping_sub(self.0 & !0xffff) >> 16) / 4;
        self.instructions().saturating_sub(distance)
    }
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has not been in the guest yet.
    Outside,
    /// In the guest.
    Guest,
    /// On a visit.
    Visit,
}

#[derive(Debug)]
struct Cpu {
    identity: u64,
    place: Place,
    /// Whether the last block outside may have returned to the guest.
    returning: bool,
    /// The last block in the guest.
    last: GuestBlock,
    /// x86: where the host goes on, while it is in guest mode.
    resume: Option<Resume>,
    visit: Visit,
}

/// x86: where #VMEXIT leads, which is behind the VMRUN. The bytes' place in QEMU's own memory tells them from a
/// guest's code at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The address.
    pub pc: u64,
    /// Where QEMU has the code; `None` where a page begins, and VMRUN does not tell.
    pub host: Option<u64>,
}

impl Resume {
    /// Whether the host goes on in a block that starts there.
    fn is(self, pc: u64, host: u64) -> bool {
        self.pc == pc && self.host.is_none_or(|resume| resume == host)
    }
}

/// What is kept of visits beside how much they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Their paths.
    pub trace: bool,
    /// The lines and pages that they touched.
    pub footprint: bool,
}

/// What is counted by one thread of QEMU: one CPU, or all of them if they share it.
#[derive(Debug)]
pub struct Meter {
    isa: Isa,
    /// Whether several CPUs share the thread, and have to be told apart.
    several: bool,
    details: Details,
    cpus: Vec<Cpu>,
    current: usize,
    /// How many CPUs are outside and may have returned to the guest.
    returning: usize,
    guest: u64,
    outside: u64,
    groups: Groups,
    devices: Names<String>,
}

impl Meter {
    /// Nothing counted yet.
    pub fn new(isa: Isa, several: bool, details: Details) -> Self {
        Meter {
            isa,
            several,
            details,
            cpus: Vec::new(),
            current: 0,
            returning: 0,
            guest: 0,
            outside: 0,
            groups: Groups::default(),
            devices: Names::default(),
        }
    }

    /// Finds the CPU that runs.
    fn identify(&mut self, machine: &mut impl Machine) {
        let identity = if self.several { machine.cpu() } else { 0 };
        if self.cpus.get(self.current).is_some_and(|cpu| cpu.identity == identity) {
            return;
        }
        let known = self.cpus.iter().position(|cpu| cpu.identity == identity);
        self.current = known.unwrap_or_else(|| {
            let visit = Visit::default();
            let last = GuestBlock::default();
            let place = Place::Outside;
            self.cpus.push(Cpu { identity, place, returning: false, last, resume: None, visit });
            self.cpus.len() - 1
        });
    }

    /// x86: VMRUN is about to be executed.
    pub fn vmrun(&mut self, resume: Resume, machine: &mut impl Machine) {
        self.identify(machine);
        if let Some(cpu) = self.cpus.get_mut(self.current) {
            cpu.resume = Some(resume);
        }
    }

    /// x86: whether the CPU executes a block that starts there in guest mode.
    pub fn in_guest_mode(&mut self, pc: u64, host: u64, machine: &mut impl Machine) -> bool {
        self.identify(machine);
        let resume = self.cpus.get(self.current).and_then(|cpu| cpu.resume);
        resume.is_some_and(|resume| !resume.is(pc, host))
    }

    /// A block of the guest is about to be executed.
    pub fn guest(&mut self, block: GuestBlock, machine: &mut impl Machine) {
        self.guest += block.instructions();
        // Of several CPUs, whoever runs was there before unless somebody may have returned: no need to ask who it is.
        let entered = match self.cpus.get(self.current) {
            Some(cpu) if !self.several => cpu.place != Place::Guest,
            Some(_) => self.returning > 0,
            None => true,
        };
        if entered {
            self.enter(machine);
        }
        if let Some(cpu) = self.cpus.get_mut(self.current) {
            cpu.last = block;
        }
    }

    fn enter(&mut self, machine: &mut impl Machine) {
        self.identify(machine);
        let Some(cpu) = self.cpus.get_mut(self.current) else { return };
        if std::mem::take(&mut cpu.returning) {
            self.returning -= 1;
        }
        let before = std::mem::replace(&mut cpu.place, Place::Guest);
        if before == Place::Visit {
            self.outside += cpu.visit.instructions;
            self.groups.add(&mut cpu.visit, self.details);
        }
    }

    /// A block outside the guest is about to be executed.
    pub fn outside(&mut self, block: &'static Block, machine: &mut impl Machine) {
        if self.several || self.cpus.is_empty() {
            self.identify(machine);
        }
        let Some(cpu) = self.cpus.get_mut(self.current) else { return };
        cpu.resume = None;
        if cpu.returning != block.returns {
            cpu.returning = block.returns;
            if block.returns { self.returning += 1 } else { self.returning -= 1 }
        }
        match cpu.place {
            Place::Outside => {
                self.outside += u64::from(block.len());
                return;
            }
            Place::Visit if block.may_be_vector => {
                if let Some(exception) = machine::exception(self.isa, machine, block) {
                    cpu.visit.exceptions += 1;
                    if exception.synchronous {
                        cpu.visit.cut(exception.pc, |index| index);
                    }
                }
            }
            Place::Visit => {}
            Place::Guest => {
                let exit = machine::exit(self.isa, machine, block);
                if exit.synchronous {
                    self.guest -= cpu.last.from(exit.pc);
                }
                let cpu_number = self.current as u32;
                let key = Key { cpu: cpu_number, reason: exit.reason, pc: exit.pc, vectors: exit.vectors };
                cpu.visit.begin(self.groups.find(key));
                cpu.place = Place::Visit;
            }
        }
        cpu.visit.push(block);
    }

    /// The instruction at `pc` has accessed a device. QEMU lets such an instruction be the last of its block: where it
    /// was not, the rest of the block was not executed.
    pub fn device(&mut self, pc: u64, device: &str, write: bool, machine: &mut impl Machine) {
        if self.several {
            self.identify(machine);
        }
        let Some(cpu) = self.cpus.get_mut(self.current) else { return };
        if cpu.place != Place::Visit {
            return;
        }
        let irqchip = is_irqchip(device);
        let device = self.devices.number(device.to_owned());
        cpu.visit.devices.push(DeviceAccess { device, write, irqchip });
        cpu.visit.cut(pc, |index| index + 1);
        if cpu.visit.devices.len() == PATH {
            cpu.visit.fold();
        }
    }

    /// Memory or a device has been accessed.
    pub fn touch(&mut self, touch: Touch, machine: &mut impl Machine) {
        if self.several {
            self.identify(machine);
        }
        let Some(cpu) = self.cpus.get_mut(self.current) else { return };
        if cpu.place != Place::Visit {
            return;
        }
        cpu.visit.touches.push(touch);
        if cpu.visit.touches.len() == PATH {
            cpu.visit.fold();
        }
    }

    /// Instructions in the guest.
    pub fn guest_instructions(&self) -> u64 {
        self.guest
    }

    /// Instructions outside it, also of visits that have not ended.
    pub fn outside_instructions(&self) -> u64 {
        let under_way = self.cpus.iter().filter(|cpu| cpu.place == Place::Visit);
        self.outside + under_way.map(|cpu| cpu.visit.instructions).sum::<u64>()
    }

    /// How many CPUs there were.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The name of a device.
    pub fn device_name(&self, number: u32) -> &str {
        self.devices.get(number).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests;
