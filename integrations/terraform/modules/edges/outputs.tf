locals {
  # Several parts make one text for cloud-init. Lists such as write_files and runcmd of all parts are kept.
  boundary = "==sallyport=="
  part = join("\n", [
    "--${local.boundary}",
    "Content-Type: %s; charset=\"utf-8\"",
    "Merge-Type: list(append)+dict(no_replace,recurse_list)+str()",
    "", "%s", "",
  ])
  user_data = {
    for name, own in local.own : name => own == null || length(var.more) == 0 ? own : join("", concat(
      ["Content-Type: multipart/mixed; boundary=\"${local.boundary}\"\nMIME-Version: 1.0\n\n"],
      [for text in concat(var.more, [own]) :
        format(local.part, startswith(text, "#!") ? "text/x-shellscript" : "text/cloud-config", text)
      ],
      ["--${local.boundary}--\n"],
    ))
  }
}

output "names" {
  description = "The names of the edges, which are those of their machines, in order."
  value       = local.names
}

output "made" {
  description = "What differs when an edge was made anew, by name. Its machine follows by it: `triggers_replace`, `replace_triggered_by` or a tag."
  value       = { for name, edge in sallyport_edge.this : name => edge.token_id }
}

output "user_data" {
  description = "The user data by the names of machines. It is ephemeral, since it has a secret: neither plan nor state has it. It is null in runs that did not make the object."
  ephemeral   = true
  value       = var.ephemeral_outputs ? local.user_data : {}
}

output "tokens" {
  description = "The join tokens of edges that this run made, for a secret store of the cloud; null for others."
  ephemeral   = true
  value       = var.ephemeral_outputs ? local.secrets : {}
}
