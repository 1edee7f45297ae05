data "sallyport_sockets" "web" {
  labels = { team = "web" }
}

output "names" {
  value = data.sallyport_sockets.web.sockets[*].dns_name
}
