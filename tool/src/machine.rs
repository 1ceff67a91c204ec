// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a configuration to what QEMU boots: the hypervisor's image and the bundle.

use std::io::ErrorKind;
use std::path::Path;

use object::{Architecture, Object};
use turnstile_machine::FileKind;
use turnstile_machine::image::{self, ImageError};

use crate::config::contents::elf_architecture;
use crate::config::file::{self, Refused};
use crate::config::images::{self, Absent, HYPERVISOR_MEMORY};
use crate::config::problem::split_advice;
use crate::config::{self, Board, Config, Loaded, Surroundings, show_size};
use crate::drives;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::qemu::Boot;
use crate::setup;

/// Builds everything that a configuration needs to be run; the bundle goes to `folder`.
///
/// With `image` that hypervisor is booted and none is built.
pub fn prepare(layout: &Layout, loaded: &Loaded, folder: &Path, image: Option<&Path>) -> Result<Boot> {
    let machine = &loaded.accept()?.machine;
    if let Some(most) = machine.board.emulated_memory()
        && let Some(memory) = machine.memory.as_ref().filter(|memory| memory.value > most)
    {
        let what =
            format!("QEMU's {} has {}, not {}", machine.board, show_size(most), show_size(memory.value));
        return Err(Failure::usage(what)
            .help("omit `memory` in [machine] to run it here; `build` writes it for the board"));
    }
    let mut boot = assemble(layout, loaded, folder, image)?;
    drives::ensure(layout, loaded.accept()?)?;
    // A file that has been made has a format.
    boot.drives = drives::all(loaded.accept()?);
    boot.dtb = match machine.board {
        Board::Rpi4 => Some(setup::board::rpi4(layout)?),
        _ => None,
    };
    Ok(boot)
}

/// Builds what a configuration needs; the bundle goes to `folder`.
///
/// With `image` that hypervisor is taken and none is built.
pub fn assemble(layout: &Layout, loaded: &Loaded, folder: &Path, image: Option<&Path>) -> Result<Boot> {
    let config = loaded.accept()?;
    check_hypervisor(image, config.machine.board.isa())?;
    let images = images::load(layout, config, Absent::Get)?.map_err(|problems| loaded.report(&problems))?;
    let image = match image {
        Some(image) => image.to_path_buf(),
        None => setup::images::hypervisor(layout, config.machine.board.isa())?,
    };
    let bundle = folder.join("bundle");
    let mut bytes = images.bundle(config)?;
    if config.machine.board == Board::Microvm {
        leave_room(&mut bytes);
    }
    write_atomically(&bundle, &bytes)?;
    let mut boot = Boot::new(image, bundle, images.machine_memory(config), config.machine.cpus);
    boot.cpu = config.machine.model();
    boot.gic = config.machine.gic;
    boot.board = config.machine.board;
    boot.cards = config.cards();
    boot.drives = drives::all(config);
    boot.iommu = config.iommu();
    Ok(boot)
}

/// Lengthens a file so that its last page is nearly empty. QEMU puts it at the end of a microvm's RAM, in whole pages, and the firmware
/// puts its ACPI tables there, too, at the very end: what the file has there would overwrite them.
fn leave_room(bytes: &mut Vec<u8>) {
    const PAGE: usize = 4096;
    bytes.resize(bytes.len().next_multiple_of(PAGE) + 1, 0);
}

/// Refuses an image that cannot be the hypervisor of this machine: QEMU starts anything, and then nothing is ever heard of it. Who has
/// something to download or to install calls it before that.
pub fn check_hypervisor(path: Option<&Path>, isa: Isa) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let shown = path.display();
    let what = match file::read(path, HYPERVISOR_MEMORY) {
        Err(Refused::Unreadable(error)) if error.kind() == ErrorKind::NotFound => {
            format!("there is no image {shown}")
        }
        Err(refused) => format!("the image {shown} {refused}"),
        Ok(bytes) => match not_a_hypervisor(&bytes, isa) {
            None => match wrong_version(turnstile_link::version_of(&bytes)) {
                None => return Ok(()),
                Some(what) => format!("the image {shown} {what}"),
            },
            Some(what) => format!("the image {shown}{what}"),
        },
    };
    let help = "give a hypervisor that this `turnstile build` wrote, or leave --image out";
    Err(Failure::usage(what).help(help))
}

/// Says why this tool and a hypervisor that speaks this version of the serial line do not understand each other.
fn wrong_version(version: Option<u16>) -> Option<String> {
    const OURS: u16 = turnstile_link::VERSION;
    match version {
        Some(OURS) => None,
        Some(other) => {
            Some(format!("speaks version {other} of the serial line, and this tool version {OURS}"))
        }
        None => Some(format!(
            "does not say which version of the serial line it speaks, as hypervisors for this tool (version {OURS}) do"
        )),
    }
}

/// Says why bytes are no hypervisor for an architecture; continues a sentence that starts with the file's name.
fn not_a_hypervisor(bytes: &[u8], isa: Isa) -> Option<String> {
    match (isa, image::parse(bytes)) {
        (Isa::Arm64, Ok(_)) => None,
        (Isa::Arm64, Err(ImageError::NotImage(kind))) => Some(format!(" is not an arm64 Image but {kind}")),
        (Isa::Arm64, Err(error)) => Some(format!(": {}", split_advice(&error.to_string()).0)),
        (Isa::X86_64, _) => not_elf(bytes, Architecture::X86_64, "x86-64"),
        (Isa::Power64, _) => not_elf(bytes, Architecture::PowerPc64, "64-bit POWER"),
    }
}

/// Says why bytes are no ELF file for this architecture.
fn not_elf(bytes: &[u8], architecture: Architecture, name: &str) -> Option<String> {
    let kind = match image::parse(bytes) {
        Ok(_) => "an arm64 Image".to_owned(),
        Err(_) => match (FileKind::of(bytes), object::File::parse(bytes)) {
            (FileKind::Elf, Ok(file)) if file.architecture() == architecture => return None,
            (FileKind::Elf, Ok(file)) => {
                return Some(format!(" is an ELF file for {}, not for {name}", elf_architecture(&file)));
            }
            (FileKind::Elf, Err(_)) => return Some(" is a damaged ELF file".to_owned()),
            (kind, _) => kind.to_string(),
        },
    };
    Some(format!(" is not an ELF file for {name} but {kind}"))
}

/// The same for a configuration of the tool's own, given as text.
pub fn prepare_text(layout: &Layout, name: &str, text: &str) -> Result<(Boot, Config)> {
    let folder = layout.bundles().join(name);
    let loaded = load_text(layout, &folder, text);
    let boot = prepare(layout, &loaded, &folder, None)?;
    let config = loaded.config.map_err(|_| Failure::failed(format!("{name} is wrong")))?;
    Ok((boot, config))
}

/// The same with a hypervisor that has been built; the bundle goes to `folder`.
pub fn prepare_own(layout: &Layout, folder: &Path, text: &str, image: &Path) -> Result<Boot> {
    prepare(layout, &load_text(layout, folder, text), folder, Some(image))
}

/// The same without the files behind its disk controllers, and without a device tree that QEMU does not make.
pub fn assemble_own(layout: &Layout, folder: &Path, text: &str, image: &Path) -> Result<Boot> {
    assemble(layout, &load_text(layout, folder, text), folder, Some(image))
}

fn load_text(layout: &Layout, folder: &Path, text: &str) -> Loaded {
    let guests = |isa| layout.guest_names(isa);
    let services = layout.service_names();
    let surroundings = Surroundings { folder, guests: &guests, services: &services, board: None };
    Loaded {
        path: folder.with_extension("toml"),
        text: text.to_owned(),
        config: config::parse(text, &surroundings),
    }
}

/// The name of a machine: its file's, without what is behind the dot.
pub fn stem(file: &Path) -> String {
    file.file_stem().map_or_else(|| "machine".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_of_another_version_is_refused() {
        assert_eq!(wrong_version(Some(turnstile_link::VERSION)), None);
        let said = wrong_version(Some(turnstile_link::VERSION - 1)).unwrap();
        assert!(said.contains(&format!("version {} of", turnstile_link::VERSION - 1)), "{said}");
        assert!(wrong_version(None).unwrap().contains("does not say"));
    }

    #[test]
    fn a_microvms_last_page_is_left_to_its_firmware() {
        for length in [1, 4095, 4096, 60_738] {
            let mut bytes = vec![7; length];
            leave_room(&mut bytes);
            assert_eq!(bytes.len() % 4096, 1);
            assert!(bytes[length..].iter().all(|byte| *byte == 0) && bytes.len() > length);
        }
    }
}
