// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which services are a VM's devices.

use alloc::vec::Vec;

use turnstile_service::abi;
use turnstile_service::image::Doorbells;

use super::Hosted;
use crate::arch::service::{Bar, Served, Service, Services};
use crate::arch::vm::Vm;
use crate::machine::{Function, Place, Reach, Site};

/// Bytes of a PCI function's configuration space.
const CONFIGURATION: u64 = 0x1000;

/// Tells a VM's exits which services are its devices.
pub fn connect(vm: &Vm, hosted: &[&'static Hosted]) {
    let mut services = Services::none();
    let mut functions = Vec::new();
    for hosted in hosted {
        let Some(service) = hosted.service.get().copied() else { continue };
        services.all.push(service);
        for (number, member) in hosted.members_of(vm) {
            match &member.site {
                Site::Device(place) => {
                    let Place { base, size, .. } = *place;
                    let served = Served { base, size, ..Served::nowhere(0, hosted.doorbells, service) };
                    match place.reach {
                        Reach::Memory => services.memory.push(served),
                        Reach::Ports => services.ports.push(served),
                        Reach::Calls => services.terminal = Some(served),
                    }
                }
                Site::Function(function) => {
                    functions.push(Connected {
                        slot: member.slot,
                        function,
                        number: number as u64,
                        doorbells: hosted.doorbells,
                        service,
                    });
                }
                Site::Mmio(place) => {
                    let (number, doorbells) = (number as u64, hosted.doorbells.behind_mmio());
                    let mask = if hosted.is_shared() { abi::MEMBER_QUEUES - 1 } else { u64::MAX };
                    let device = served(number, abi::CONFIGURATION, doorbells, service);
                    services.memory.push(Served { base: place.base, size: place.size, mask, ..device });
                }
            }
        }
    }
    functions.sort_by_key(|function| function.slot);
    connect_functions(&mut services, &functions);
    vm.set_services(services);
}

/// A PCI function of a VM.
struct Connected<'a> {
    slot: u64,
    function: &'a Function,
    /// Which member of its service the VM is.
    number: u64,
    doorbells: Doorbells,
    service: &'static Service,
}

impl Connected<'_> {
    /// Returns one of its devices, which is nowhere yet.
    fn served(&self, device: u64, doorbells: Doorbells) -> Served {
        served(self.number, device, doorbells, self.service)
    }
}

/// Returns a device of the member of this number, which is nowhere yet.
fn served(member: u64, device: u64, doorbells: Doorbells, service: &'static Service) -> Served {
    let bell = member * abi::MEMBER_QUEUES;
    Served { bell, ..Served::nowhere(abi::member_device(member, device), doorbells, service) }
}

/// The same for PCI functions: first what is accessed most often.
fn connect_functions(services: &mut Services, functions: &[Connected<'_>]) {
    let others = (0..abi::BAR_COUNT).filter(|bar| *bar != abi::DOORBELL_BAR);
    for bar in core::iter::once(abi::DOORBELL_BAR).chain(others) {
        for function in functions {
            let doorbells = if bar == abi::DOORBELL_BAR { function.doorbells } else { Doorbells::NONE };
            services.bars.push(Bar::new(function.served(abi::BARS + bar, doorbells)));
        }
    }
    for function in functions {
        let space = || function.served(abi::CONFIGURATION, Doorbells::NONE);
        services.functions.push(space());
        let page =
            function.function.configuration.map(|base| Served { base, size: CONFIGURATION, ..space() });
        services.memory.extend(page);
    }
}
