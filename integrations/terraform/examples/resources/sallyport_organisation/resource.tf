resource "sallyport_organisation" "this" {
  name = "Example Ltd"
  ssh_authority = {
    extensions = ["permit-pty", "permit-port-forwarding"]
  }
}
