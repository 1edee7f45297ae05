resource "sallyport_organisation" "this" {
  name          = "Example"
  ssh_authority = { extensions = ["permit-pty"] }
}
