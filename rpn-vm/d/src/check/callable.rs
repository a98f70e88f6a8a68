//! What can be called: its name, its arguments, and how it is written.

/// A function or an action.
pub(crate) struct Callable {
    pub name: &'static str,
    /// The type of its value, if it has one.
    pub gives: Option<&'static str>,
    /// What its arguments are.
    pub arguments: Vec<&'static str>,
    /// How many must be there.
    pub least: usize,
    /// Whether any number may follow.
    pub more: bool,
}

impl Callable {
    /// One whose arguments are of any type: least and most of them.
    pub fn of_any(name: &'static str, least: usize, most: usize) -> Self {
        let more = most == usize::MAX;
        let known = if more { least } else { most };
        Self { name, gives: None, arguments: vec!["value"; known], least, more }
    }

    /// How it is written.
    pub fn form(&self) -> String {
        let mut form = self.gives.map(|ty| format!("{ty} ")).unwrap_or_default().replace("* ", "*");
        form.push_str(self.name);
        form.push('(');
        for (n, argument) in self.arguments.iter().enumerate() {
            if n == self.least {
                form.push('[');
            }
            form.push_str(if n == 0 { "" } else { ", " });
            form.push_str(argument);
        }
        form.push_str(if self.arguments.len() > self.least { "]" } else { "" });
        form.push_str(if self.more { ", .." } else { "" });
        form.push(')');
        form
    }
}
