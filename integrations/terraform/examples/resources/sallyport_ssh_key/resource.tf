resource "sallyport_ssh_key" "laptop" {
  name       = "laptop"
  public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPXWSJxzefjcAIkzXG3LnTRIY4FbGLUHF6RZdkEQpIh6 me@laptop"
}
