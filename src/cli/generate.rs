//! What is made from the definition of the command line: completion scripts
//! and the manual page.

use std::io;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;

/// `hapax completion`.
#[derive(Args, Clone, Debug)]
pub struct CompletionArgs {
    /// Which shell.
    pub shell: Shell,
}

impl CompletionArgs {
    /// The script.
    pub fn script(&self) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "hapax", &mut script);
        script
    }
}

/// The manual page, of all commands in one.
///
/// # Errors
///
/// When what is rendered cannot be written to memory: never.
pub fn man() -> io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    for command in command.get_subcommands() {
        of_command(command, &mut text)?;
    }
    Ok(ascii(&String::from_utf8_lossy(&text)).into_bytes())
}

/// Roff of every age reads ASCII; what is beyond has names there.
fn ascii(text: &str) -> String {
    let mut page = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii() => page.push(c),
            '…' => page.push_str("..."),
            c => page.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    page
}

/// A command as a section of its own, what clap makes sections of as
/// sub-sections, and its own commands behind it.
fn of_command(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    if command.get_name() == "help" {
        return Ok(());
    }
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let page = Man::new(command.clone());
    let mut own = Vec::new();
    page.render_description_section(&mut own)?;
    page.render_options_section(&mut own)?;
    text.extend(format!(".SH \"{}\"\n", name.to_uppercase()).into_bytes());
    let own = String::from_utf8_lossy(&own).replace(".SH ", ".SS ");
    text.extend(own.replace(".SS DESCRIPTION\n", "").into_bytes());
    let mut commands = command.get_subcommands();
    commands.try_for_each(|command| of_command(command, text))
}
