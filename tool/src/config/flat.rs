// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flat images and flash of VMs for arm64: their keys, and what is wrong with where an image goes.

use std::ops::Range;

use turnstile_bundle::{Arm64, Flat, Format};
use turnstile_machine::map::{MIN_FLASH, MapError};
use turnstile_machine::{FileKind, GuestMachine, Layout, LayoutError, flat, image, layout};

use super::Vm;
use super::problem::{Problem, split_advice};
use super::read::Reader;
use super::size::show_size;

/// Where the file says what it says about the kernel's place, for messages about it; the VM's header where it says
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    load: Range<usize>,
    entry: Range<usize>,
    flash: Range<usize>,
}

impl Places {
    /// Nothing is said.
    pub fn none(span: Range<usize>) -> Self {
        Self { load: span.clone(), entry: span.clone(), flash: span }
    }
}

/// Reads the keys `format`, `load-address` and `entry`.
pub fn read_format(reader: &mut Reader<'_, '_>, map: GuestMachine, places: &mut Places) -> Format {
    let format = reader.choice("format", &[(Format::IMAGE, false), (Format::FLAT, true)]);
    let (load, entry) = (reader.number("load-address"), reader.number("entry"));
    if !format.is_some_and(|format| format.value) {
        for (key, at) in [("load-address", &load), ("entry", &entry)] {
            if let Some(at) = at {
                let what = format!("`{key}` is for flat images: an arm64 Image says itself where it goes");
                reader.problem(at.span.clone(), what, "write format = \"flat\", or leave it out");
            }
        }
        return Format::Image;
    }
    let usual = Flat::usual(map.map()).load;
    let load = load.map_or(usual, |load| {
        places.load = load.span;
        load.value
    });
    let entry = entry.map_or(load, |entry| {
        places.entry = entry.span;
        entry.value
    });
    Format::Flat(Flat { load, entry })
}

/// Reads the key `flash`: the bytes of each bank; zero if there is none.
pub fn read_flash(reader: &mut Reader<'_, '_>, map: GuestMachine, places: &mut Places) -> u64 {
    let Some(flash) = reader.size("flash") else { return 0 };
    places.flash = flash.span.clone();
    match map.map().check_flash(flash.value) {
        Err(MapError::Flash { most, .. }) => {
            let what = format!("a bank of flash cannot have {}", show_size(flash.value));
            let help = format!("give a power of two from {} to {}", show_size(MIN_FLASH), show_size(most));
            reader.problem(flash.span, what, help);
        }
        _ if flash.value == 0 => {
            reader.problem(flash.span, "a bank of flash has at least one byte", "leave `flash` out");
        }
        _ => {}
    }
    flash.value
}

/// Decides where the images of a VM go; the problem says what is wrong with them, and where to change that.
pub fn judge(vm: &Vm, arm64: &Arm64, kernel: &[u8], initrd: Option<u64>) -> Result<Layout, Problem> {
    let (map, memory, length) = (arm64.map.map(), vm.memory.value, kernel.len() as u64);
    let at_kernel = |text: String| {
        let (what, help) = split_advice(&text);
        Problem::new(vm.kernel.span.clone(), format!("{}: {what}", vm.kernel.value), help)
    };
    let plan = match arm64.format {
        Format::Image => {
            let header = image::parse(kernel).map_err(|error| at_kernel(advised(&error)))?;
            layout(map, memory, &header, length, initrd)
        }
        Format::Flat(place) => {
            flat::check(kernel).map_err(|error| at_kernel(error.to_string()))?;
            flat::layout(map, memory, arm64.flash, place, length, initrd)
        }
    };
    plan.map_err(|error| misplaced(vm, arm64, error))
}

/// Says what a file is that is no arm64 Image; what is nothing known may be a flat image.
fn advised(error: &image::ImageError) -> String {
    match error {
        image::ImageError::NotImage(FileKind::Unknown | FileKind::Efi) => {
            format!("{error}, or write format = \"flat\" if its bytes are to be executed as they are")
        }
        _ => error.to_string(),
    }
}

fn misplaced(vm: &Vm, arm64: &Arm64, error: LayoutError) -> Problem {
    let (what, help) = split_advice(&error.to_string());
    match error {
        LayoutError::TooSmall { need, .. } => {
            let need = need.next_multiple_of(2 << 20);
            let what = format!("{} are too small for this VM's images", show_size(vm.memory.value));
            Problem::new(vm.memory.span.clone(), what, format!("give at least {}", show_size(need)))
        }
        LayoutError::InitrdTooFar => Problem::new(vm.memory.span.clone(), what, help),
        LayoutError::Nowhere { address, .. } => {
            let could_be_flash = arm64.map.map().flash.iter().any(|bank| bank.contains(address));
            let flash = if could_be_flash { "; for flash there, give the VM more `flash`" } else { "" };
            Problem::new(vm.places.load.clone(), what, help + flash)
        }
        LayoutError::OnDeviceTree { .. } => Problem::new(vm.places.load.clone(), what, help),
        LayoutError::FlashTooSmall { .. } => Problem::new(vm.places.flash.clone(), what, help),
        LayoutError::Entry(_) => Problem::new(vm.places.entry.clone(), what, help),
    }
}
