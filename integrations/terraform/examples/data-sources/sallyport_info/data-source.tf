data "sallyport_info" "this" {}

# Machines trust the installation's own authority, where it has one.
output "ca" {
  value = data.sallyport_info.this.ca_pem
}
